"""Forward selection: what the evidence charges, what a candidate gains, what comes in with it."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from itofit import Snapshots
from itofit.moments.adaptive_ridges import AdaptiveRidges
from itofit.moments.forward_selection import Candidates, couplings, log_evidence, own_slopes
from itofit.moments.gauss_newton import State
from itofit.moments.relevance import ABSENT, CONSTANT, Posterior, Prior
from itofit.moments.residuals import Residual
from itofit.moments.whitening import Whitening
from itofit.process.features import affine, joined, monomials, ridges
from itofit.process.noise import ConstantDiffusion

N_DIMS = 2
TERMS = [(0, 0), (0, 1), (0, 0, 0)]


class Line(Residual):
    """A residual that is linear: y = J v - b."""

    def __init__(self, J, b):
        vars(self).update(J=J, b=b)

    def __call__(self, v):
        return [self.J @ v - self.b]

    def jacobian(self, v, whitening, columns):
        return self.J[:, columns]

    def spreads(self, v):
        raise NotImplementedError

    def process(self, v):
        raise NotImplementedError

    def only(self, marks):
        raise NotImplementedError

    def with_noise(self, diffusion):
        raise NotImplementedError

    def folds(self):
        raise NotImplementedError


def marginal(J, b, precision):
    """log N(b; 0, I + J Lambda^-1 J'), which is the evidence of a linear model."""
    return multivariate_normal.logpdf(b, cov=np.eye(len(b)) + (J / precision) @ J.T)


@pytest.mark.parametrize("n_rows", [5, 40])
def test_the_evidence_of_a_linear_model_is_its_marginal_likelihood(n_rows):
    """In either of the two spaces, and up to the constant that all models share."""
    rng = np.random.default_rng(0)
    J = rng.standard_normal((n_rows, 8))
    b = 2.0 * rng.standard_normal(n_rows)
    groups = np.array([0, 0, 1, 1, 2, 2, CONSTANT, ABSENT])
    prior = Prior(groups, np.array([0.5, 3.0, 40.0]), np.full(3, 1e-4))
    alive = prior.alive
    np.testing.assert_array_equal(alive, np.arange(8) < 7)
    v = np.zeros(8)
    v[alive] = Posterior(J[:, alive], prior.diagonal[alive]).mean(b)
    nothing = Whitening((np.eye(n_rows),), {(0, 0): np.eye(n_rows)})
    wanted = marginal(J[:, alive], b, prior.diagonal[alive]) + 0.5 * n_rows * np.log(2.0 * np.pi)
    evidence = log_evidence(Line(J, b), State(v, prior), nothing)
    assert evidence == pytest.approx(wanted, rel=1e-8)


@pytest.fixture(scope="module")
def probing(probing_of):
    """The first coordinate is pushed by the square of itself, strongly."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 300, N_DIMS))
    for n, t in enumerate((0.0, 0.2, 0.4)):
        x[n, :, 0] += 2.0 * t * x[n, :, 0] ** 2
    data = Snapshots.from_arrays(list(x), [0.0, 0.2, 0.4])
    return probing_of(data, ConstantDiffusion(0.3 * jnp.eye(N_DIMS)), 0.1)


@pytest.fixture(scope="module")
def adaptive(probing):
    box = 20.0 * np.ones(N_DIMS)
    rest = joined([affine(N_DIMS), monomials(TERMS, -box, box)])
    return AdaptiveRidges.of(probing.simulated(rest, 2, cosines=True), rest, 2)


@pytest.fixture(scope="module")
def drawn():
    return ridges(N_DIMS, [(0,), (0, 1)], 3, np.random.default_rng(1))


@pytest.fixture(scope="module")
def state(adaptive):
    prior = own_slopes(adaptive.dictionary, N_DIMS)
    shape = Prior(np.full(adaptive.n_ridges * adaptive.n_slots, ABSENT), np.zeros(0), np.zeros(0))
    v = np.zeros(adaptive.n_linear + len(shape.group))
    return State(v, prior.joined(shape))


@pytest.fixture(scope="module")
def whitening(probing, adaptive, state):
    return probing.whitening(adaptive, state.v)


def test_a_gain_is_a_difference_of_evidence(adaptive, state, whitening, drawn):
    """Of the linear problem with the candidate at its best precision over the one without, by the
    Gaussian density.
    """
    candidates = Candidates.of(adaptive, drawn, threshold=0.0)
    gain, precision = candidates._gains(state, whitening)
    n_terms = adaptive.rest.n_features * N_DIMS
    alive = np.flatnonzero(state.prior.alive)
    J, beside = adaptive.jacobians(state.v, whitening, np.arange(n_terms), drawn)
    inside = J[:, alive]
    b = inside @ state.v[alive] - whitening(adaptive(state.v))
    every = np.concatenate([J, beside], axis=1)
    before = marginal(inside, b, state.prior.diagonal[alive])
    best = np.argsort(-gain.ravel())[:4]
    assert np.all(gain.ravel()[best] > 1.0)
    for column in best:
        wider = np.column_stack([inside, every[:, column]])
        both = np.append(state.prior.diagonal[alive], precision.ravel()[column])
        assert gain.ravel()[column] == pytest.approx(marginal(wider, b, both) - before, rel=1e-3)


def test_what_is_in_the_model_and_constants_gain_nothing(adaptive, state, whitening, drawn):
    gain, _ = Candidates.of(adaptive, drawn, None)._gains(state, whitening)
    assert np.all(gain[0] == 0.0)
    assert gain[1, 0] == gain[2, 1] == 0.0


def test_a_candidate_must_gain_more_the_more_there_are_of_its_kind(adaptive, drawn):
    entry = Candidates.of(adaptive, drawn, None).entry
    np.testing.assert_allclose(
        entry, [np.inf, *[np.log(4)] * 2, *[np.log(6)] * 3, *[np.log(12)] * 6]
    )
    assert set(Candidates.of(adaptive, drawn, 7.0).entry[1:].tolist()) == {7.0}


def test_the_square_comes_in_with_what_divides_it(adaptive, state, whitening):
    bigger = Candidates.of(adaptive, None, None).taken_in(state, whitening)
    new = (bigger.prior.alive & ~state.prior.alive)[: adaptive.n_linear].reshape(-1, N_DIMS)
    assert new[3, 0]  # by itself or as a divisor of the cube
    assert not new[0].any()
    np.testing.assert_array_equal(bigger.v, state.v)


def test_couplings_are_pairs_in_few_dimensions_alone():
    """Coefficients feature by feature (1, x0, x1, x2) and output by output."""
    np.testing.assert_array_equal(couplings(affine(3), 3), [[4, 6], [5, 9], [8, 10]])
    assert len(couplings(affine(6), 6)) == 0


def test_nothing_comes_in_where_too_much_is_asked(adaptive, state, whitening, drawn):
    assert Candidates.of(adaptive, drawn, 1e6).taken_in(state, whitening) is state


def test_a_ridge_takes_a_free_place_and_may_adapt_towards_what_it_drives(adaptive, state, drawn):
    candidates = Candidates.of(adaptive, drawn, None)
    first = candidates._with_ridge(state, 1, np.array([1]), np.array([2.0]))
    second = candidates._with_ridge(first, 4, np.array([0, 1]), np.array([2.0, 3.0]))
    places = second.prior.alive[: adaptive.n_linear].reshape(-1, N_DIMS)[adaptive.rest.n_features :]
    np.testing.assert_array_equal(places, [[False, True], [True, True]])
    # A ridge of the first coordinate that drives the second may adapt in both.
    np.testing.assert_array_equal(second.prior.alive[adaptive.n_linear :], np.ones(6, dtype=bool))
    np.testing.assert_allclose(
        adaptive.shape(second.v)[1, :2], drawn.features.directions[4], rtol=1e-6
    )
    assert candidates._with_ridge(second, 0, np.array([0]), np.array([1.0])) is second
