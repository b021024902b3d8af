"""A record: a result of the study with all that it belongs to, flat as in the file."""

from typing import Any

Record = dict[str, Any]


def grouped(records: list[Record], *names: str) -> list[tuple[tuple, list]]:
    """The records by their values of `names`, in the order in which these first appear."""
    groups: dict[tuple, list] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in names), []).append(record)
    return list(groups.items())
