"""Which scheme and which quadrature? The error of the simulated law, of the weak form and of a fit,
at equal cost.

    python -m experiments.schemes --system syn1 syn3 --json schemes.json

- law: Euler-Maruyama, Heun and ShARK (an additive-noise Runge-Kutta scheme of diffrax, left out
  where diffrax is not installed) against continuous time. Cost is the number of drift evaluations
  along a path.
- quadrature: the weak residual of the true drift under four rules in time, against the law of the
  Euler chain with the system's step and against the law in continuous time.
- fit: the affine drift of Syn-1 that makes the residual of f(x) = x vanish, without sampling noise.

Between its nodes the Euler chain is an Ito process whose drift g(X_k) stands still, so

    E f(X_K) - E f(X_0)
        = sum_k int_{t_k}^{t_{k+1}} E[g(X_k) . grad f(X_s) + tr(a hess f(X_s)) / 2] ds.

The rule called `chain` is the trapezoid rule for these integrals; it is exact for f of degree 2 and
additive noise. On Syn-1 all is exact but ShARK's law; on Syn-3 all schemes and the reference share
one Brownian path.
"""
