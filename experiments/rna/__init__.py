"""The paper's single-cell tasks: forecast the law of ten marker genes on a day that was not
observed, with floors.

    python -m experiments.rna --data DIR --method persistence midpoint moments \\
        --json rna.json --figures pictures
    python -m experiments.rna --data DIR --method fpp fpp-paper --runs fits --fit-only --device gpu
    python -m experiments.rna --data DIR --method fpp fpp-paper --runs fits \\
        --json rna.json --figures pictures

Task 1 learns from days 0, 4 and 7 and forecasts day 2 (between snapshots); task 2 learns from days
0, 2 and 4 and forecasts day 7 (beyond them). Forecasts grow from the cells of day 0, and once more
from the training day before the one wanted, held to the one after (`bridge`). DIR holds
`klein_counts.npz`, a subset of cells and genes: what is made of it says "subset-normalised", for
library sizes and shares of zeros are over its genes only. With `--full` the whole data set is read,
or fetched into DIR, by `itofit.datasets.klein2015`.

No fit sees the held-out day:

- the ten markers are fixed in advance (a published list; that list was once made from days 0 and
  7);
- counts are normalised, and zeros imputed, day by day;
- the genes that help to impute are scored between the first and the last training day, in task 1 as
  published (D0-D7), in task 2 between D0 and D4;
- clouds are handed to every method in units of the last training day (mean 0, sd 1 there). The
  methods scale by themselves as well, by training days, so that only two depend on the unit:
  `fpp-paper`, which is in raw units as printed, and `potential-rnn`, which has one sigma for all
  coordinates;
- the published unit, mean and sd of D7, serves to report distances and for nothing else.

The data are fixed: seeds vary features, noise and first weights of a method, never the data. A run
is resumable cell by cell, as `experiments.table1` is.
"""
