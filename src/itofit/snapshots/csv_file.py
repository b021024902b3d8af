"""csv: a header, one row a point, a column of times."""

import csv
from pathlib import Path

from itofit.errors import InputError
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.table import from_columns, to_columns


def read(path: Path, time_key: str | None = None) -> Snapshots:
    """Snapshots from a csv file."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = list(csv.reader(file)) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            expected=f"{path.name} to be a csv file in UTF-8",
            found=f"{error}",
            hint="export the table again as UTF-8",
        ) from None
    header = [name.strip() for name in header]
    if len(set(header)) < len(header):
        raise InputError(
            expected=f"a name of its own for every column of {path.name}",
            found=", ".join(header),
            hint="rename columns",
        )
    rows = [row for row in rows if row]
    ragged = next((i for i, row in enumerate(rows) if len(row) != len(header)), None)
    if not rows or ragged is not None:
        raise InputError(
            expected=f"a header and rows of {len(header)} values in {path.name}",
            found="no rows"
            if ragged is None
            else f"{len(rows[ragged])} values in row {ragged + 1}",
            hint="export the table again with commas between values",
        )
    columns = {name: [row[i] for row in rows] for i, name in enumerate(header)}
    return from_columns(columns, time_key, path.name)


def write(snapshots: Snapshots, path: Path) -> None:
    """Write a csv file."""
    columns = to_columns(snapshots)
    # repr of a float reads back as the same float
    texts = [[repr(float(value)) for value in column] for column in columns.values()]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*texts, strict=True))
