"""What the examples in docstrings may use without saying where it comes from.

Run them with `pytest --doctest-modules src/itofit`.
"""

import ast

import pytest


@pytest.fixture(scope="session")
def doctest_model():
    """A fitted process: the Ornstein-Uhlenbeck system, 200 points at three times, sigma learned."""
    import jax

    from itofit import FokkerPlanckProcess, known_system

    snapshots = known_system("ou").observe(200, [0.0, 0.3, 1.0], key=jax.random.key(0))
    return FokkerPlanckProcess(solver="moments", random_state=0).fit(snapshots)


@pytest.fixture(autouse=True)
def names_of_doctests(request):
    """Put `np`, `jax` and, where an example uses a `model` that it does not make, one into it."""
    if not isinstance(request.node, pytest.DoctestItem):
        return
    import jax
    import numpy as np

    names = request.getfixturevalue("doctest_namespace")
    names["np"] = np
    names["jax"] = jax
    source = "".join(example.source for example in request.node.dtest.examples)
    used = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]
    models = [node for node in used if node.id == "model"]
    if models and not any(isinstance(node.ctx, ast.Store) for node in models):
        names["model"] = request.getfixturevalue("doctest_model")
