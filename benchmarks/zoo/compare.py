"""Two runs of the zoo: what got better or worse, by task and method, beyond the spread of seeds.

    beyond:  no ratio of the new run lies among those of the old one, and the geometric means differ
             by more than 2 %

Only seeds that both runs have are compared. Three seeds each whose laws are the same lie apart by
chance in one case of ten: a long list with both signs is noise.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.zoo.leaderboard import Case, Results, geometric_mean

_NOTICED = 1.02


@dataclass(frozen=True)
class Change:
    """A method on a task, then and now: ratios to the best trivial row, over common seeds."""

    method: str
    task: str
    old: float
    new: float

    def __str__(self) -> str:
        return f"{self.task}  {self.method}  {self.old:.2f} -> {self.new:.2f}"


@dataclass(frozen=True)
class Changes:
    """All that changed; `mended` and `broken` are seeds that failed in one of the runs alone."""

    better: list[Change]
    worse: list[Change]
    mended: list[str]
    broken: list[str]
    n_compared: int


def changes(old: Results, new: Results) -> Changes:
    """What differs between two runs beyond the spread of seeds."""
    pairs = list(_pairs(old, new))
    changed = [change for method, then, now in pairs if (change := _change(method, then, now))]
    return Changes(
        better=sorted((c for c in changed if c.new < c.old), key=lambda c: c.new / c.old),
        worse=sorted((c for c in changed if c.new > c.old), key=lambda c: c.old / c.new),
        mended=[_named(method, then, seed) for method, then, seed in _only_first(pairs)],
        broken=[
            _named(method, now, seed)
            for method, now, seed in _only_first([(m, now, then) for m, then, now in pairs])
        ],
        n_compared=len(pairs),
    )


def comparison(old: Results, new: Results) -> str:
    """The changes in words."""
    both = changes(old, new)
    parts = [f"{both.n_compared} cases in both runs; ratios to the best trivial row, old -> new"]
    for title, lines in (
        ("better", both.better),
        ("worse", both.worse),
        ("failed, and does not any more", both.mended),
        ("fails now", both.broken),
    ):
        parts.append(f"{title}: {len(lines)}")
        parts += [f"  {line}" for line in lines]
    return "\n".join(parts)


def _pairs(old: Results, new: Results) -> Iterator[tuple[str, Case, Case]]:
    """Methods on tasks that both runs have."""
    for method, cases in new.cases.items():
        for task, now in cases.items():
            then = old.cases.get(method, {}).get(task)
            if then is not None:
                yield method, then, now


def _change(method: str, then: Case, now: Case) -> Change | None:
    seeds = set(then.ratios) & set(now.ratios)
    if not seeds:
        return None
    before = [then.ratios[seed] for seed in seeds]
    after = [now.ratios[seed] for seed in seeds]
    change = Change(method, then.task, geometric_mean(before), geometric_mean(after))
    apart = max(after) < min(before) or min(after) > max(before)
    factor = max(change.new / change.old, change.old / change.new)
    return change if apart and factor > _NOTICED else None


def _only_first(pairs: list[tuple[str, Case, Case]]) -> Iterator[tuple[str, Case, int]]:
    """Seeds that failed in the first of two runs and have a score in the second."""
    for method, failed, scored in pairs:
        for seed in failed.failures:
            if seed in scored.scores:
                yield method, failed, seed


def _named(method: str, case: Case, seed: int) -> str:
    return f"{case.task}  {method}  seed {seed}: {case.failures[seed]}"
