"""The paper's figures and the pictures of its two theoretical remarks, each with the numbers behind
it.

    python -m experiments.figures syn1 syn2 syn3 curl error-bound --out docs/figures
    python -m experiments.figures curl --out docs/figures --device gpu --seed 1

Every figure is one PNG and one JSON of the same name: seed, device, settings and every number that
is drawn.

- `syn1`, `syn2`, `syn3`: forecasts of both solvers over the test clouds (Figure 2 of the paper).
- `curl`: a rotation that leaves the law as it is cannot be learned, and one that does not can.
- `error-bound`: how far the error of a drift can grow on the way (Prop. 3), and what a smoother
  drift buys.
"""
