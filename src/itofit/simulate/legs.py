"""Legs: which simulations reach which snapshots.

With the anchor `previous` every interval is simulated from the snapshot before it (Prop. 1 of the
paper), with `initial` all of them from the first (Prop. 2).
"""

from typing import NamedTuple

from itofit.simulate.mesh import Mesh

ANCHORS = ("previous", "initial")


class Leg(NamedTuple):
    """One simulation, from the snapshot `start` over `steps`.

    `targets` are the snapshots it reaches, each with the node at which the chain is read.
    """

    start: int
    steps: tuple[float, ...]
    targets: tuple[tuple[int, int], ...]


def legs_between(mesh: Mesh, anchor: str) -> tuple[Leg, ...]:
    """One leg from the first snapshot to all others, or one from each to the next."""
    later = range(1, len(mesh.observed))
    if anchor == "initial":
        targets = tuple((n, mesh.observed[n]) for n in later)
        return (Leg(0, tuple(mesh.steps.tolist()), targets),)
    legs = []
    for n in later:
        steps = tuple(mesh.between(n - 1, n).steps.tolist())
        legs.append(Leg(n - 1, steps, ((n, len(steps)),)))
    return tuple(legs)
