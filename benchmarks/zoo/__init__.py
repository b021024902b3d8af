"""The zoo: problems nobody tuned for, every method with one setting for all of them.

    python -m benchmarks.zoo --list
    python -m benchmarks.zoo --quick --json quick.json
    python -m benchmarks.zoo --tasks all --rows default --jobs 2 --data DIR --json zoo.json
    python -m benchmarks.zoo --print zoo.json rivals.json --picture zoo.png
    python -m benchmarks.zoo --compare old.json new.json

A task gives snapshots, leaves out one or more times and asks for them. A row is a method. Its score
is exact W1 between its forecast and the cloud left out, at equal sizes, the mean over the times
asked for; its ratio is that over the score of the best trivial row of the same task and seed:
persistence, the transport midpoint, and for forecasts the straight continuation of the last two
snapshots' plan. Beside it stands the floor, what a perfect model would score. Every fit runs in a
process of its own; one that raises, is not finite or is past `--budget` seconds is a failure. A
second call with the same `--json` goes on where the first one stopped.
"""
