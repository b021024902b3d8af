"""The law of one individual later on, against the transition of the Ornstein-Uhlenbeck chain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from itofit import FokkerPlanckProcess, InputError, known_system
from itofit.process import ConstantDiffusion, FunctionDrift, ItoProcess
from itofit.snapshots import Scaling

RATE = 2.0
SIGMA = 0.7
DT = 0.01
N = 4000


@pytest.fixture(scope="module")
def model():
    """A model whose process is known: the fit is replaced by dX = -RATE X dt + SIGMA dW."""
    data = known_system("ou").observe(50, [0.0, 0.5, 1.0], key=jax.random.key(0))
    known = FokkerPlanckProcess(SIGMA, dt=DT, solver="moments", random_state=0)
    known.snapshots_ = data
    known.scaling_ = Scaling.identity(2)
    known.seed_ = 0
    known.dt_ = DT
    known.standard_process_ = ItoProcess(
        FunctionDrift(lambda x: -RATE * x), ConstantDiffusion(SIGMA * jnp.eye(2))
    )
    return known


def test_it_is_the_transition_of_the_chain(model):
    """Mean (1 - a h)^K x and variance s^2 h sum (1 - a h)^2k of an Euler chain; 4 standard errors
    of N paths.
    """
    x = np.asarray([[1.0, -2.0], [0.0, 3.0]])
    K = 30
    q = 1.0 - RATE * DT
    later = model.predict_from(x, start=0.4, to=0.4 + K * DT, n_paths=N)
    sd = SIGMA * np.sqrt(DT * (1.0 - q ** (2 * K)) / (1.0 - q**2))
    assert later.draws.shape == (2, N, 2)
    np.testing.assert_allclose(later.mean, q**K * x, atol=4 * sd / np.sqrt(N))
    np.testing.assert_allclose(later.sd, np.full((2, 2), sd), rtol=4 / np.sqrt(2 * N))
    # the median of a normal sample has sqrt(pi / 2) times the standard error of its mean
    np.testing.assert_allclose(later.median, q**K * x, atol=4 * 1.2533 * sd / np.sqrt(N))
    low, high = later.quantile([0.1587, 0.8413])
    np.testing.assert_allclose((high - low) / 2, np.full((2, 2), sd), rtol=0.1)


def test_one_state_and_no_time(model):
    later = model.predict_from([1.0, 2.0], start=0.0, to=0.0, n_paths=3)
    np.testing.assert_allclose(later.draws, [[1.0, 2.0]] * 3)
    assert model.predict_from([1.0, 2.0], 0.0, 0.1).mean.shape == (2,)
    again = model.predict_from([1.0, 2.0], 0.0, 0.1)
    np.testing.assert_array_equal(again.draws, model.predict_from([1.0, 2.0], 0.0, 0.1).draws)


def test_states_have_noise_of_their_own(model):
    draws = model.predict_from(np.zeros((2, 2)), 0.0, 0.1, n_paths=5).draws
    assert not np.any(draws[0] == draws[1])


def test_bad_questions(model):
    for ask, words in [
        (lambda: model.predict_from([1.0], 0.0, 1.0), "shape"),
        (lambda: model.predict_from([1.0, 2.0], 1.0, 0.5), "forwards"),
        (lambda: model.predict_from([1.0, 2.0], 0.0, 1.0, n_paths=0), "n_paths"),
        (lambda: model.predict_from([1.0, 2.0], 0.0, 1.0).quantile(2.0), "levels"),
    ]:
        with pytest.raises(InputError, match=words):
            ask()
    with pytest.raises(NotFittedError):
        FokkerPlanckProcess().predict_from([1.0], 0.0, 1.0)
