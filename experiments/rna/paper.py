"""What the paper prints for the task: a "Wasserstein error" for each gene and day, of an unknown
scale.

Expression in logs lies between 0 and about 10, where a one-dimensional W1 of 33.86 cannot be: the
numbers are shown beside ours and compared with nothing.
"""

PRINTED = ("NN", "LEGEND", "FPP")
REMARK = "not comparable: scale unknown"

# By gene and held-out day: NN, LEGEND and the paper's own.
_VALUES = {
    ("Mt1", 2): (33.86, 10.28, 4.23),
    ("Mt1", 7): (12.69, 7.21, 2.92),
    ("Mt2", 2): (31.45, 13.32, 4.04),
    ("Mt2", 7): (11.58, 7.89, 1.50),
    ("Tdh", 2): (16.28, 5.75, 2.15),
    ("Tdh", 7): (28.19, 22.49, 1.03),
    ("Gsn", 2): (34.94, 10.77, 3.31),
    ("Gsn", 7): (15.74, 10.42, 2.07),
}


def printed_value(method: str, gene: str, day: int) -> float | None:
    """What the paper prints for one of `PRINTED`; None where it prints nothing."""
    row = _VALUES.get((gene, day))
    return None if row is None else row[PRINTED.index(method)]
