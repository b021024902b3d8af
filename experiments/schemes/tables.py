"""The printed tables, one for each part of the study."""

import itertools

from experiments.schemes.records import Record, grouped
from experiments.schemes.residuals import DATA, PROBES


def law_table(records: list[Record]) -> str:
    """The worst error over times and coordinates of every scheme and step, with its error."""
    columns = ("mean train", "mean test", "sd train", "sd test")
    lines = [
        f"{'scheme':<7} {'dt':<9} {'evals':<6} {'time':<5} "
        + " ".join(f"{column:<19}" for column in columns)
    ]
    for (scheme, dt), rows in grouped(records, "scheme", "dt"):
        cells = []
        for what, times in itertools.product(("mean", "sd"), ("train", "test")):
            worst = max((r for r in rows if r["times"] == times), key=lambda r: abs(r[what]))
            se = worst[f"{what}_se"]
            cells.append(f"{abs(worst[what]):.3e}" + (f" ({se:.0e})" if se else ""))
        first = rows[0]
        cost = f"{first['evaluations']:<6d} {first['seconds_ratio']:<5.2f}"
        lines.append(f"{scheme:<7} {dt:<9.3g} {cost} " + " ".join(f"{c:<19}" for c in cells))
    return "\n".join(line.rstrip() for line in lines)


def quadrature_table(records: list[Record]) -> str:
    """The worst residual over intervals and coordinates: a row a path and rule, a column a law and
    f.
    """
    columns = list(itertools.product(DATA, PROBES))
    lines = []
    for (anchor,), group in grouped(records, "anchor"):
        head = " ".join(f"{data[:4]} {name:<7}" for data, name in columns)
        lines.append(f"anchor {anchor:<10} {head} max se")
        for (path, rule), rows in grouped(group, "path", "rule"):
            worst = [
                max(abs(r["residual"]) for r in rows if (r["data"], r["probe"]) == column)
                for column in columns
            ]
            se = max(r["se"] for r in rows)
            lines.append(
                f"{path:<6} {rule:<10} " + " ".join(f"{w:<12.3e}" for w in worst) + f" {se:.0e}"
            )
    return "\n".join(lines)


def fit_table(records: list[Record]) -> str:
    """Coefficients of both coordinates, and the worst error of the forecast mean at every test
    time.
    """
    times = sorted({r["time"] for r in records})
    lines = [
        "data       anchor   path  rule      a1     mu1    a2     mu2     "
        + " ".join(f"t={t:<7g}" for t in times)
    ]
    for choices, rows in grouped(records, "data", "anchor", "path", "rule"):
        coefficients = [
            next(r[name] for r in rows if r["coordinate"] == c)
            for c in (0, 1)
            for name in ("a", "mu")
        ]
        errors = [max(abs(r["error"]) for r in rows if r["time"] == t) for t in times]
        left = "{:<10} {:<8} {:<5} {:<9} ".format(*choices)
        lines.append(
            left
            + " ".join(f"{v:<6.4f}" for v in coefficients)
            + " "
            + " ".join(f"{e:.3e}" for e in errors)
        )
    return "\n".join(line.rstrip() for line in lines)


TABLES = {"law": law_table, "quadrature": quadrature_table, "fit": fit_table}
