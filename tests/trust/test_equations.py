"""Equations of motion: the choice of terms, the fit behind them, three ways to print them."""

import itertools
import json
import warnings
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from itofit import FitWarning, FokkerPlanckProcess, InputError, Moments, Outcome, Problem, Snapshots
from itofit.moments.evidence import Evidence
from itofit.moments.solution import MomentsSolution
from itofit.problem import Streams
from itofit.process import ConstantDiffusion, ItoProcess
from itofit.process.drift import FunctionDrift
from itofit.process.features import affine
from itofit.snapshots import Scaling
from itofit.solution import GaussNewtonHistory
from itofit.trust.equations import equations
from itofit.trust.printed import Equations
from itofit.trust.subset import best_subset

DT = 0.05
SIGMA = 1.0
PUSH = np.array([12.0, 12.0])
PULL = np.array([4.0, 1.0])
TRUTH = {(0, ()): 12.0, (0, (0,)): -4.0, (1, ()): 12.0, (1, (1,)): -1.0}


def chain(times, rng, n_points):
    """Clouds of the Euler chain of dx = (push - pull x) dt + dW, with DT as its step: what the
    solver fits.
    """
    x = rng.standard_normal((n_points, 2))
    now = 0.0
    clouds = []
    for time in times:
        for _ in range(round((time - now) / DT)):
            x = x + (PUSH - PULL * x) * DT + SIGMA * np.sqrt(DT) * rng.standard_normal(x.shape)
        now = time
        clouds.append(x)
    return clouds


def snapshots(times, seed, *, shared, n_points=400):
    rng = np.random.default_rng(seed)
    if shared:
        clouds = chain(times, rng, n_points)
    else:
        clouds = [chain([t], rng, n_points)[0] for t in times]
    return Snapshots.from_arrays(clouds, times, names=["a", "b"])


def at_truth(data, path="simulated"):
    """A solution of the moments solver that holds the true drift."""
    scaling = Scaling.fit(data)
    problem = Problem.pose(data, SIGMA, DT, scaling=scaling, streams=Streams(0))
    mean = jnp.asarray(scaling.mean, dtype=float)
    sd = jnp.asarray(scaling.sd, dtype=float)
    drift = FunctionDrift(lambda z: (jnp.asarray(PUSH) - jnp.asarray(PULL) * (mean + sd * z)) / sd)
    n_gaps = len(data) - 1
    nothing = np.zeros(0)
    evidence = Evidence(
        coefficients=np.zeros((3, 2)),
        covariance=np.eye(6),
        precision=np.ones((3, 2)),
        ends=np.column_stack([np.arange(n_gaps), 1 + np.arange(n_gaps)]),
        chi2=np.ones(n_gaps),
        n_rows=np.ones(n_gaps, dtype=int),
        row_mean=np.ones(n_gaps),
        row_variance=np.full(n_gaps, 2.0),
        n_determined=np.ones(n_gaps),
        alive=np.ones((3, 2), dtype=bool),
    )
    return MomentsSolution(
        problem=problem,
        process=ItoProcess(drift, problem.diffusion),
        outcome=Outcome.converged,
        history=GaussNewtonHistory(nothing, nothing, nothing, nothing, nothing),
        n_iter=0,
        seconds=0.0,
        solver=Moments(n_draws=4),
        dictionary=affine(2),
        evidence=evidence,
        path=path,
        mesh=problem.mesh,
    )


def errors_of(polynomial, truth=TRUTH):
    """Errors of the true terms in their standard errors; fails where terms are missing or false."""
    terms = polynomial.terms
    rows = np.argwhere(polynomial.present).tolist()
    present = {(output, terms[row]): (row, output) for row, output in rows}
    assert set(present) == set(truth)
    errors = [polynomial.coefficients[present[at]] - value for at, value in truth.items()]
    return np.array(errors) / [polynomial.standard_errors[present[at]] for at in truth]


@pytest.fixture(scope="module")
def data():
    return snapshots([0.0, 0.1, 0.3], 0, shared=True)


@pytest.fixture(scope="module")
def model(data):
    solver = Moments(n_single=0, n_pair=0)
    model = FokkerPlanckProcess(SIGMA, dt=DT, solver=solver, random_state=0)
    # The step is the chain's own.
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        return model.fit(data)


@pytest.fixture(scope="module")
def polynomial(model):
    return model.equations(degree=2)


@pytest.fixture(scope="module")
def independent():
    return snapshots([0.0, 0.1, 0.3], 10, shared=False)


@pytest.fixture(scope="module")
def shared():
    return snapshots([0.0, 0.1, 0.3], 10, shared=True)


@pytest.fixture(scope="module")
def from_truth(independent, shared):
    """By whether particles are shared, the equations from the true drift on."""
    return {False: equations(at_truth(independent), 2), True: equations(at_truth(shared), 2)}


def test_the_best_subset_is_the_best_of_all():
    """All 2^9 sets by hand; columns are correlated so that greedy steps alone go astray."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        J = rng.standard_normal((30, 9)) @ (np.eye(9) + 0.8 * rng.standard_normal((9, 9)))
        b = J[:, :3] @ np.array([1.0, -1.0, 0.5]) + rng.standard_normal(30)

        def cost(inside, J=J, b=b):
            rest = b - J[:, inside] @ np.linalg.lstsq(J[:, inside], b, rcond=None)[0]
            return rest @ rest + 9.0 * len(inside)

        sets = (list(s) for k in range(10) for s in itertools.combinations(range(9), k))
        assert best_subset(J, b, 9.0).tolist() == min(sets, key=cost)


def test_copies_and_nothing_are_no_columns():
    rng = np.random.default_rng(1)
    column = rng.standard_normal(40)
    J = np.column_stack([column, 1e-9 * column, np.zeros(40), rng.standard_normal((40, 50))])
    chosen = best_subset(J, 10.0 * column, 9.0)
    assert len(chosen) == 1
    assert chosen[0] in (0, 1)
    assert best_subset(J, np.zeros(40), 9.0).tolist() == []


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_linear_drift_is_recovered_with_its_errors(from_truth, is_shared):
    """Four coefficients of two data sets: none is off by more than 4 standard errors, p = 5e-4 in
    all.
    """
    got = from_truth[is_shared]
    assert np.all(np.abs(errors_of(got)) < 4.0)
    assert got.converged
    assert got.same_particles == is_shared
    assert not got.rejected(0.001)
    # The covariance holds the squared standard errors, term by term.
    np.testing.assert_allclose(np.diag(got.covariance), got.standard_errors[got.present] ** 2)


def test_other_units_give_the_same_equation(from_truth, shared):
    """For x -> u x a coefficient of a term of degree d goes by u^(1 - d); the problem in
    standardised units is the same.
    """
    solution = at_truth(shared)
    scaling = solution.problem.scaling
    u = np.array([1000.0, 0.01])
    in_units = Scaling(u * scaling.mean, u * scaling.sd)
    rescaled = replace(solution, problem=replace(solution.problem, scaling=in_units))
    plain = from_truth[True]
    other = equations(rescaled, 2)
    assert plain.terms == other.terms
    by_term = np.array([u / np.prod(u[list(term)]) for term in plain.terms])
    np.testing.assert_allclose(other.coefficients, by_term * plain.coefficients, rtol=1e-5)
    np.testing.assert_allclose(other.standard_errors, by_term * plain.standard_errors, rtol=1e-5)
    assert other.p_value == pytest.approx(plain.p_value, rel=1e-4)


def test_dense_snapshots_give_equations_too():
    """One Euler step h a gap is 1 - a h, which is exp(-p h) of a fine chain; the trapezoid is only
    near it here.

    1600 points: the slower pull is then some 8 standard errors, where 3 decide whether it comes in.
    """
    times = [round(DT * k, 2) for k in range(5)]
    data = snapshots(times, 3, shared=False, n_points=1600)
    pull = -np.log(1.0 - PULL * DT) / DT
    truth = {at: -pull[at[0]] if at[1] else pull[at[0]] * PUSH[at[0]] / PULL[at[0]] for at in TRUTH}
    corrected = equations(at_truth(data, "corrected"), 1)
    assert np.all(np.abs(errors_of(corrected, truth)) < 4.0)
    centre = Scaling.fit(data).mean
    observed = equations(at_truth(data, "observed"), 1)
    np.testing.assert_allclose(observed(centre), corrected(centre), rtol=0.25)


def test_a_polynomial_that_cannot_be_right_says_so(independent):
    """With three times the noise clouds would be far wider than they are."""
    solution = at_truth(independent)
    loud = ConstantDiffusion(jnp.diag(3.0 * SIGMA / jnp.asarray(solution.problem.scaling.sd)))
    got = equations(replace(solution, process=ItoProcess(solution.process.drift, loud)), 2)
    assert got.rejected(0.001)
    assert "snapshots contradict" in str(got)


def test_the_equations_of_a_fit(model, polynomial, data):
    assert np.all(np.abs(errors_of(polynomial)) < 4.0)
    assert polynomial.converged
    # The same data and terms, but the covariance of the residuals at another drift and no prior.
    x = data.clouds[1][:50]
    size = np.sqrt(np.sum(polynomial.standard_errors**2))
    assert np.max(np.abs(polynomial(x) - model.drift(x))) < 3.0 * size


def test_equations_survive_saving(model, polynomial, tmp_path):
    model.save(tmp_path / "run")
    again = FokkerPlanckProcess.load(tmp_path / "run").equations(degree=2)
    assert again.terms == polynomial.terms
    np.testing.assert_allclose(again.coefficients, polynomial.coefficients, rtol=1e-3, atol=1e-3)


def test_a_drift_of_any_kind_can_be_the_beginning(model, polynomial, as_trained):
    again = equations(as_trained(model.solution_), degree=2)
    np.testing.assert_allclose(again.coefficients, polynomial.coefficients, rtol=1e-3)


def test_what_cannot_be_asked_is_refused(model, polynomial):
    for degree in (0, 6, True):
        with pytest.raises(InputError, match="degree"):
            model.equations(degree)
    with pytest.raises(NotFittedError):
        FokkerPlanckProcess().equations()
    with pytest.raises(InputError, match="level"):
        polynomial.interval(95.0)
    with pytest.raises(InputError, match="shape"):
        polynomial(np.zeros(3))
    with pytest.raises(InputError, match="ended"):
        equations(replace(model.solution_, evidence=None, path="observed"))
    clouds = [np.random.default_rng(k).standard_normal((9, 12)) for k in range(2)]
    wide = replace(model.solution_.problem, snapshots=Snapshots.from_arrays(clouds, [0.0, 1.0]))
    with pytest.raises(InputError, match="coefficients"):
        equations(replace(model.solution_, problem=wide), 3)


def printed(names=("x", "y"), scale=1.0):
    """Two equations of three terms, one of them absent from each."""
    terms = ((), (0,), (0, 0, 1))
    coefficients = scale * np.array([[12.3456, 0.0], [-4.0, 0.5], [0.0, -123456.0]])
    errors = scale * np.array([[0.1234, 0.0], [0.0199, 0.25], [0.0, 1300.0]])
    return Equations(
        names=tuple(names),
        degree=3,
        terms=terms,
        coefficients=coefficients,
        standard_errors=errors,
        covariance=np.eye(4),
        chi2=11.0,
        expected=12.0,
        p_value=0.5,
        same_particles=False,
        converged=True,
    )


def run(source):
    space = {}
    exec(compile(source, "<equations>", "exec"), space)
    return space["drift"]


def test_text_rounds_to_two_digits_of_the_error():
    lines = str(printed()).splitlines()
    assert lines[:4] == [
        "dx/dt =   12.35    +- 0.12",
        "        -  4.000   +- 0.020    x",
        "dy/dt =    0.50    +- 0.25     x",
        "        -  1.235e5 +- 0.013e5  x^2 y",
    ]
    verdict = "chi-squared 11.0, 12.0 expected, p = 0.500: the snapshots do not contradict"
    assert lines[4].startswith(verdict)


def test_latex_is_one_aligned_block():
    lines = printed().latex().splitlines()
    assert lines[0] == r"\begin{aligned}"
    first = r"\frac{\mathrm{d} x}{\mathrm{d} t} &= (12.35 \pm 0.12) - (4.000 \pm 0.020)\, x \\"
    assert lines[1] == first
    assert lines[2].endswith(r"(0.50 \pm 0.25)\, x - (1.235 \pm 0.013) \cdot 10^{5}\, x^{2} y")
    assert lines[3] == r"\end{aligned}"


def test_odd_names_are_harmless():
    odd = printed(("CD_4 50% #1", "\\input{x}^~$&\n\"'''"))
    latex = odd.latex()
    assert r"\text{CD\_4 50\% \#1}^{2}" in latex
    assert r"\text{\textbackslash{}input\{x\}\textasciicircum{}\textasciitilde{}\$\&" in latex
    assert latex.count("{") - 2 * latex.count(r"\{") == latex.count("}") - 2 * latex.count(r"\}")
    x = np.array([[1.0, 2.0], [-1.0, 0.5]])
    for names in (odd.names, ("np", "x"), ("class", "y"), ("a", "a"), ("x1", "x2"), ("x1", "x0")):
        np.testing.assert_allclose(run(printed(names).python())(x), printed()(x), rtol=1e-12)
    assert "x2**2" not in printed(("x1", "x2")).python()
    assert "x1**2 * x2" in printed(("x1", "x2")).python()
    assert "[CD_4 50% #1]^2" in str(odd)


def test_the_printed_forms_are_the_equations(polynomial, data):
    drift = run(polynomial.python())
    np.testing.assert_allclose(drift(data.clouds[0]), polynomial(data.clouds[0]), rtol=1e-12)
    np.testing.assert_allclose(drift(data.clouds[0][0]), polynomial(data.clouds[0][0]), rtol=1e-12)
    records = json.loads(json.dumps(polynomial.to_records()))
    by_hand = np.zeros((3, 2))
    for record in records:
        value = record["coefficient"] * np.prod(data.clouds[0][:3] ** record["powers"], axis=1)
        by_hand[:, polynomial.names.index(record["coordinate"])] += value
    np.testing.assert_allclose(by_hand, polynomial(data.clouds[0][:3]))
    low, high = polynomial.interval(0.95)
    np.testing.assert_allclose(
        (high - low)[polynomial.present],
        2 * 1.959964 * polynomial.standard_errors[polynomial.present],
    )


def test_nothing_is_an_equation_as_well():
    nothing = replace(
        printed(),
        terms=(),
        coefficients=np.zeros((0, 2)),
        standard_errors=np.zeros((0, 2)),
        covariance=np.zeros((0, 0)),
        converged=False,
    )
    x = np.ones((3, 2))
    np.testing.assert_array_equal(nothing(x), 0.0 * x)
    np.testing.assert_array_equal(run(nothing.python())(x), 0.0 * x)
    assert "&= 0" in nothing.latex()
    assert str(nothing).startswith("dx/dt =   0\ndy/dt =   0\n")
    assert "first guess" in str(nothing)
    assert nothing.to_records() == []


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_numbers_of_any_size_are_read_back(scale):
    """Within half a unit of the second digit of the error."""
    line = str(printed(scale=scale)).splitlines()[0].split("=")[1].split()
    assert float(line[0]) == pytest.approx(12.3456 * scale, abs=0.005 * scale)
    assert float(line[2]) == pytest.approx(0.1234 * scale, abs=0.005 * scale)
