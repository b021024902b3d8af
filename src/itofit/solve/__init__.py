"""What solvers share: checkpoints, listeners, and the choice of a step."""
