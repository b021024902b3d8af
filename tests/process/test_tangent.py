"""Arrows in an embedding against embeddings whose derivative is known."""

import numpy as np

from itofit.process.tangent import tangent_arrows


def test_of_a_linear_embedding_they_are_its_map():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 5))
    g = rng.normal(size=(400, 5))
    A = rng.normal(size=(5, 2))
    found = tangent_arrows(x, g, x @ A + 3.0)
    wanted = g @ A
    # the ridge holds back a share of about 1 %, more where neighbours differ little in a direction
    assert np.linalg.norm(found - wanted) < 0.1 * np.linalg.norm(wanted)


def test_of_a_curved_embedding_they_are_its_derivative():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, size=(4000, 2))
    g = rng.normal(size=(4000, 2))
    embedded = np.stack([np.sin(x[:, 0]) + x[:, 1], x[:, 0] * x[:, 1]], axis=1)
    jacobian = np.stack(
        [np.stack([np.cos(x[:, 0]), np.ones(4000)], 1), np.stack([x[:, 1], x[:, 0]], 1)], 1
    )
    wanted = np.einsum("nij,nj->ni", jacobian, g)
    # 30 of 4000 points in a square of side 2 lie within .1; the map changes by at most that much
    # over them
    assert np.sqrt(np.mean((tangent_arrows(x, g, embedded) - wanted) ** 2)) < 0.1


def test_a_coordinate_that_does_not_vary_gives_no_arrow():
    x = np.random.default_rng(0).normal(size=(100, 2)) * [1.0, 0.0]
    assert np.all(np.isfinite(tangent_arrows(x, np.ones((100, 2)), x)))
