"""The paper's Table 1: fit every method to Syn-1, Syn-2 and Syn-3, score it beside its floor, print
the table.

    python -m experiments.table1 --system syn1 --dim 2 --method moments --seeds 5 --json out.json
    python -m experiments.table1 --all --json out.json
    python -m experiments.table1 --print out.json
    python -m experiments.table1 --print out.json --metric population --against moments
    python -m experiments.table1 --all --method adversarial --seeds 3 --runs fits --fit-only

A run is resumable fit by fit: the file is replaced as a whole after every fit, and a fit that is
complete in it is not repeated. With `--runs` the fits of methods that train are kept as run
folders: a machine with a GPU can make them (`--fit-only`) and another one score them. A new method
joins by its name in `methods.METHODS` or `methods.TOGETHER`.
"""
