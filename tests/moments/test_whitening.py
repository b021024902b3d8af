"""Whitened residuals have unit covariance over independent replicates of the snapshots, neighbours
included.
"""

import numpy as np
import pytest

from itofit.moments.whitening import (
    Spread,
    Whitening,
    _covariance,
    _factored,
    contributions_of,
)

# x_{n+1} = A x_n + C z: the transition that plays the chains, and a law at the first time.
A = np.array([[0.9, 0.3], [-0.2, 0.8]])
C = np.array([[0.5, 0.0], [0.2, 0.4]])
N_DRAWS = 2


def probes(x):
    """Means, covariances and cosines: seven functions of two coordinates."""
    cosines = np.cos(x @ np.array([[1.0, 0.0, 0.7], [0.0, 1.3, -0.7]]) + 0.4)
    return np.column_stack([x, x[:, :1] ** 2, x[:, :1] * x[:, 1:], cosines])


def propagated(points, n_steps, rng):
    """Mean of the probes over the chains from every point."""
    total = 0.0
    for _ in range(N_DRAWS):
        y = points
        for _ in range(n_steps):
            y = y @ A.T + rng.standard_normal(y.shape) @ C.T
        total = total + probes(y)
    return total / N_DRAWS


def drawn(n, time, rng):
    """A fresh cloud of the law at that time: points of different snapshots are independent."""
    x = rng.standard_normal((n, 2))
    for _ in range(time):
        x = x @ A.T + rng.standard_normal(x.shape) @ C.T
    return x


def weights_of(n, kind):
    w = np.ones(n) if kind == "equal" else np.random.default_rng(n).uniform(0.5, 2.0, n)
    return w / w.sum()


def spreads_of(sizes, anchor, kind, rng):
    """The three snapshots of one replicate and what two transitions between them give."""
    clouds = [drawn(n, time, rng) for time, n in enumerate(sizes)]
    weights = [weights_of(n, kind) for n in sizes]
    pairs = [(0, 1), (1, 2)] if anchor == "previous" else [(0, 1), (0, 2)]
    return [
        Spread(a, b, weights[a], weights[b], propagated(clouds[a], b - a, rng), probes(clouds[b]))
        for a, b in pairs
    ]


def residuals(spreads):
    return [s.start_weights @ s.propagated - s.target_weights @ s.observed for s in spreads]


def replicates(whitening, anchor, kind, sizes, count):
    rng = np.random.default_rng(5)
    return np.array(
        [whitening(residuals(spreads_of(sizes, anchor, kind, rng))) for _ in range(count)]
    )


SIZES = (60, 80, 100)
COUNT = 2000


@pytest.mark.parametrize(
    ("anchor", "kind"), [("previous", "equal"), ("initial", "equal"), ("previous", "weighted")]
)
def test_replicates_have_unit_covariance(anchor, kind):
    """The covariance is estimated on one large problem, rescaled, and used on many small ones.

    A whitening from clouds 200 times larger has no error of its own to speak of: entries of
    relative error sqrt(2 / 12000) = 0.013. The mean over R = 2000 replicates of y_i y_j has the sd
    sqrt(2 / R) = 0.032 on the diagonal and sqrt(1 / R) = 0.022 off it for Gaussian y; 5 of these
    plus 3 of the former cover 105 entries.
    """
    factor = 200
    large = spreads_of([factor * n for n in SIZES], anchor, "equal", np.random.default_rng(0))
    weights = [weights_of(n, kind) for n in SIZES]
    # Weights of the small problem, each shared by `factor` points: Cov(r) falls by `factor`, y
    # grows by its root.
    scaled = [
        s._replace(
            start_weights=np.repeat(weights[s.start], factor) / factor,
            target_weights=np.repeat(weights[s.target], factor) / factor,
        )
        for s in large
    ]
    whitening = Whitening.of(scaled, 1.0)
    y = replicates(whitening, anchor, kind, SIZES, COUNT) / np.sqrt(factor)
    mean_square = y.T @ y / COUNT
    error = np.abs(mean_square - np.eye(y.shape[1]))
    assert y.shape[1] >= 12
    assert np.max(np.diag(error)) < 5 * np.sqrt(2.0 / COUNT) + 3 * 0.013
    assert np.max(error - np.diag(np.diag(error))) < 5 * np.sqrt(1.0 / COUNT) + 3 * 0.013
    # Both transitions centred: E y = 0 since the chains are the truth; sd of a mean is 1 / sqrt(R).
    assert np.max(np.abs(y.mean(axis=0))) < 4.5 / np.sqrt(COUNT)


@pytest.mark.parametrize("anchor", ["previous", "initial"])
def test_ignoring_neighbours_would_be_seen(anchor):
    """The same replicates whitened transition by transition are correlated by more than twice the
    tolerance above.
    """
    spreads = spreads_of([200 * n for n in SIZES], anchor, "equal", np.random.default_rng(0))
    bases = Whitening.of(spreads, 1.0).bases
    alone = Whitening(bases, {(n, n): np.eye(len(b)) for n, b in enumerate(bases)})
    y = replicates(alone, anchor, "equal", SIZES, COUNT) / np.sqrt(200)
    k = len(bases[0])
    cross = np.abs((y.T @ y / COUNT)[:k, k:])
    assert cross.max() > 2 * (5 * np.sqrt(1.0 / COUNT) + 3 * 0.013)


def test_without_propagated_values_transitions_stand_alone_and_the_target_speaks_for_both():
    """Cov(r) = (1 / n_start + 1 / n_target) Cov(f): the start borrows the spread of the target."""
    spreads = spreads_of((50, 60, 70), "previous", "equal", np.random.default_rng(1))
    whitening = Whitening.of([s._replace(propagated=None) for s in spreads], 1.0)
    for n, (s, basis) in enumerate(zip(spreads, whitening.bases, strict=True)):
        size = 1.0 / len(s.start_weights) + 1.0 / len(s.target_weights)
        covariance = size * np.cov(s.observed.T, bias=True)
        np.testing.assert_allclose(basis @ covariance @ basis.T, np.eye(len(basis)), atol=1e-8)
        np.testing.assert_array_equal(whitening.factor[n, n], np.eye(len(basis)))


def dense(spreads, bases):
    """Cov(r) of all transitions from the definition, point by point, in the chosen directions."""
    total = np.zeros((sum(map(len, bases)),) * 2)
    for snapshot in range(4):
        rows = []
        for s, basis in zip(spreads, bases, strict=True):
            ends = [
                (s.start, s.start_weights, s.propagated, 1.0),
                (s.target, s.target_weights, s.observed, -1.0),
            ]
            contributions = [
                sign * w[:, None] * (f - w @ f) for where, w, f, sign in ends if where == snapshot
            ]
            rows.append(contributions[0] @ basis.T if contributions else None)
        count = next((len(r) for r in rows if r is not None), 0)
        filled = [
            np.zeros((count, len(b))) if r is None else r for r, b in zip(rows, bases, strict=True)
        ]
        stacked = np.concatenate(filled, axis=1)
        total += stacked.T @ stacked
    return total


def four_snapshots(anchor):
    rng = np.random.default_rng(3)
    sizes = (90, 100, 110, 120)
    clouds = [drawn(n, time, rng) for time, n in enumerate(sizes)]
    weights = [weights_of(n, "weighted") for n in sizes]
    pairs = [(0, 1), (1, 2), (2, 3)] if anchor == "previous" else [(0, 1), (0, 2), (0, 3)]
    return [
        Spread(a, b, weights[a], weights[b], propagated(clouds[a], b - a, rng), probes(clouds[b]))
        for a, b in pairs
    ]


@pytest.mark.parametrize("anchor", ["previous", "initial"])
def test_the_factor_is_the_cholesky_root_of_the_dense_matrix(anchor):
    spreads = four_snapshots(anchor)
    whitening = Whitening.of(spreads, 1.0)
    ends = np.cumsum([0, *map(len, whitening.bases)])
    assembled = np.zeros((ends[-1], ends[-1]))
    for (i, j), block in whitening.factor.items():
        assembled[ends[i] : ends[i + 1], ends[j] : ends[j + 1]] = block
    matrix = dense(spreads, whitening.bases)
    # The jitter of 1e-6 on unit variances moves the factor by as little.
    np.testing.assert_allclose(assembled, np.linalg.cholesky(matrix), atol=2e-5)
    np.testing.assert_allclose(np.diag(matrix), 1.0, atol=1e-8)
    r = np.random.default_rng(9).standard_normal((3, 7))
    along = np.concatenate([basis @ row for basis, row in zip(whitening.bases, r, strict=True)])
    wanted = np.linalg.solve(np.linalg.cholesky(matrix), along)
    np.testing.assert_allclose(whitening(list(r)), wanted, rtol=1e-3)


def test_only_neighbours_have_blocks_where_only_neighbours_are_correlated():
    neighbours = [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2)]
    assert sorted(Whitening.of(four_snapshots("previous")).factor) == neighbours
    assert (2, 0) in Whitening.of(four_snapshots("initial")).factor


def test_fill_in_of_the_factor():
    """Blocks (1, 0) and (2, 0) of the matrix fill (2, 1) of the factor even where the matrix has
    none.
    """
    rng = np.random.default_rng(2)
    sizes = (2, 3, 2)
    blocks = {(i, i): 4.0 * np.eye(n) for i, n in enumerate(sizes)}
    blocks |= {(i, 0): 0.5 * rng.standard_normal((sizes[i], sizes[0])) for i in (1, 2)}
    ends = np.cumsum([0, *sizes])
    matrix = np.zeros((7, 7))
    for (i, j), block in blocks.items():
        matrix[ends[i] : ends[i + 1], ends[j] : ends[j + 1]] = block
        matrix[ends[j] : ends[j + 1], ends[i] : ends[i + 1]] = block.T
    root = np.linalg.cholesky(matrix)
    for (i, j), block in _factored(blocks, 3).items():
        wanted = root[ends[i] : ends[i + 1], ends[j] : ends[j + 1]]
        np.testing.assert_allclose(block, wanted, atol=1e-6)
    assert (2, 1) in _factored(blocks, 3)


def test_a_row_given_twice_counts_as_two_independent_rows_and_a_weight_of_two_as_one_heavy_row():
    """Repeating every row halves Cov(r); doubling every weight changes nothing; one point of weight
    w counts w^2.

    So integer weights and repeated rows agree in the mean of r but not in its covariance: a weight
    says how much a single draw stands for, not how many draws there were.
    """
    first, _ = spreads_of((40, 50, 60), "previous", "equal", np.random.default_rng(4))

    def twice(f):
        return np.concatenate([f, f])

    repeated = Spread(
        0,
        1,
        weights_of(80, "equal"),
        weights_of(100, "equal"),
        twice(first.propagated),
        twice(first.observed),
    )
    once = Whitening.of([first], 1.0)
    double = Whitening.of([repeated], 1.0)
    r = residuals([first])
    np.testing.assert_allclose(residuals([repeated]), r, atol=1e-12)
    np.testing.assert_allclose(np.sum(double(r) ** 2), 2.0 * np.sum(once(r) ** 2), rtol=1e-5)
    heavy = np.where(np.arange(40) < 20, 2.0, 1.0)
    weighted = first._replace(start_weights=heavy / heavy.sum())
    n_effective = heavy.sum() ** 2 / np.sum(heavy**2)
    observed = weighted.start_weights[:, None] * (
        first.propagated - weighted.start_weights @ first.propagated
    )
    bases = (np.eye(first.observed.shape[1]),)
    blocks = _covariance([[(0, observed)]], bases)
    # Both halves alike, so that which are heavy does not matter.
    same = np.tile(first.propagated[:20], (2, 1))
    plain = same - same.mean(axis=0)
    mine = weighted.start_weights[:, None] * (same - weighted.start_weights @ same)
    np.testing.assert_allclose(mine.T @ mine, plain.T @ plain / 40 / n_effective, rtol=1e-9)
    np.testing.assert_allclose(blocks[0, 0], observed.T @ observed)


def test_at_most_a_fraction_of_the_effective_points_become_directions():
    spreads = spreads_of((30, 25, 40), "previous", "equal", np.random.default_rng(6))
    assert [len(b) for b in Whitening.of(spreads, 0.2).bases] == [5, 5]
    assert [len(b) for b in Whitening.of(spreads, 0.01).bases] == [1, 1]
    w = np.zeros(30) + 1e-12
    w[:10] = 0.1
    few = spreads[0]._replace(start_weights=w / w.sum())
    assert len(Whitening.of([few], 0.4).bases[0]) == 4


def test_copies_of_a_probe_are_dropped():
    spreads = spreads_of((300, 300, 300), "previous", "equal", np.random.default_rng(6))
    copied = [
        s._replace(
            propagated=np.repeat(s.propagated, 2, axis=1), observed=np.repeat(s.observed, 2, axis=1)
        )
        for s in spreads
    ]
    n_directions = [len(b) for b in Whitening.of(spreads).bases]
    assert [len(b) for b in Whitening.of(copied).bases] == n_directions


@pytest.mark.parametrize("far", [1e3, 1e12])
def test_chains_that_run_away_do_not_explain_the_residuals(far):
    """Their own spread is as large as what they miss; in units of it they would miss nothing."""
    rng = np.random.default_rng(0)
    spreads = [
        spread._replace(propagated=far * spread.propagated)
        for spread in spreads_of((200, 200, 200), "previous", "equal", rng)
    ]
    y = Whitening.of(spreads)(residuals(spreads))
    assert np.mean(y**2) > 100.0


def test_chains_at_infinity_leave_a_covariance():
    """That of what was observed, every transition by itself; their residuals stay what they are."""
    rng = np.random.default_rng(0)
    spreads = spreads_of((200, 200, 200), "previous", "equal", rng)
    gone = [spreads[0], spreads[1]._replace(propagated=np.full_like(spreads[1].propagated, np.nan))]
    whitening = Whitening.of(gone)
    alone = Whitening.of([spread._replace(propagated=None) for spread in spreads])
    np.testing.assert_allclose(whitening.bases[1], alone.bases[1])
    assert set(whitening.factor) == {(0, 0), (1, 1)}


def test_what_is_near_the_truth_is_not_bounded():
    """The bound is a hundred times what the law of total variance allows."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 3))
    even = np.full(500, 1.0 / 500)
    (_, begun), _ = contributions_of(Spread(0, 1, even, even, 5.0 * x, x))
    np.testing.assert_allclose(begun, 5.0 * (x - x.mean(axis=0)) / 500, atol=1e-12)
