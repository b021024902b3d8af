"""Intraday volume: how well a day's later bins are foretold from its first one, by whom, and by
which measure.

    python -m experiments.volume --data DIR --json volume.json --figures pictures
    python -m experiments.volume --data DIR --stock JPM --group A \\
        --method rolling-all kalman-matched moments
    python -m experiments.volume --data DIR --describe
    python -m experiments.volume --print volume.json

DIR holds intraday_volume/volume_5min.npz: of each stock days x bins of volume. As in the paper bins
0, 2, 7, 10 and 22 of all days but the last 100 are fitted, in logs, one Euler step of 0.02 a bin,
and bins 1, 9, 13 and 21 of the last 100 days are foretold. Group A: all entries. Group B: of every
bin half of the training days' entries are dropped at random, bin by bin, for all methods the same.
Nothing is fitted to the last 100 days; rolling means and Kalman filters also look at those of them
that are past. A process of ours starts from the day's own bin 0 and forecasts with one path, the
mean and the median of 500. Scores: per-day and sorted (distributional) MAPE of volume and of its
log, pinball loss and coverage of predicted quantiles of the log. Cells that are done are not made
again.
"""
