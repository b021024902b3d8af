"""Real snapshots, one time left out after the other: which method foretells it best, beside its
floor.

    python -m experiments.cells --data DIR --json cells.json
    python -m experiments.cells --data DIR --dataset emt --method moments midpoint persistence
    python -m experiments.cells --print cells.json

DIR holds emt_a549/emt_3d.npz, ipsc_bifurcation/ipsc_4d.npz and larry_2d/mouse_hematopoiesis_2d.npz.
A method is fitted to all other times and forecasts the one left out, grown from where it was
trained to grow from (`previous`, LEGEND from the first: `initial`) and, where there is a snapshot
after, from the one before and held to that (`bridge`, for every method; `bridge_ot`: half of the
cloud so, half on straight lines). Distances are exact W1 in raw units; floor and comparison are
those of split halves at half size (20 splits), the full-size distance stands beside them. The data
are fixed: seeds vary the method only. Cells that are done are not fitted again.
"""
