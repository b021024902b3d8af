"""OT-CFM (Tong et al. 2024) by torchcfm: one flow through all snapshots.

v(x, s) is regressed on (x1 - x0) / gap, x0 and x1 paired by exact transport of minibatches, and
integrated by Euler. For a gap of 2 this is what the authors' runner does with a time left out.
Beyond the last snapshot v is the network's own continuation, for which it was not made.
"""

import numpy as np
import torch
from protocol import Given, Leg, Move, serve
from torchcfm.conditional_flow_matching import ExactOptimalTransportConditionalFlowMatcher
from torchcfm.models import MLP

# github.com/atong01/conditional-flow-matching, runner/configs/model/otcfm.yaml
WIDTH = 64  # hidden_dims: [64, 64, 64], selu; torchcfm.models.MLP has the same three layers
SIGMA = 0.1  # sigma_min, here in standard deviations of a coordinate
LEARNING_RATE = 1e-3  # AdamW
WEIGHT_DECAY = 1e-5
# runner/configs/datamodule/eb_full.yaml
BATCH = 128  # of each snapshot
# runner/src/models/cfm_module.py: 101 times from one snapshot to the next, Euler
STEPS_A_UNIT = 100
# Ours: every step has all pairs of snapshots, as in examples/single_cell/single-cell_example.ipynb;
# the runner has 1000 epochs (configs/experiment/cfm.yaml), for 500 points a snapshot 4000 batches
# each of which is spread over the pairs.
STEPS = 1000


class Pairs:
    """Draws places, times and velocities of all pairs of snapshots together."""

    def __init__(self, given: Given):
        self.times = given.times
        self.clouds = [torch.tensor(cloud, dtype=torch.float32) for cloud in given.clouds]
        self.matcher = ExactOptimalTransportConditionalFlowMatcher(sigma=SIGMA)

    def draw(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs (x, s) of the network and the velocities that it should have there."""
        inputs = []
        velocities = []
        for k in range(len(self.clouds) - 1):
            gap = float(self.times[k + 1] - self.times[k])
            before = _minibatch(self.clouds[k])
            after = _minibatch(self.clouds[k + 1])
            u, x, dx_du = self.matcher.sample_location_and_conditional_flow(before, after)
            s = float(self.times[k]) + gap * u
            inputs.append(torch.cat([x, s[:, None]], dim=1))
            velocities.append(dx_du / gap)
        return torch.cat(inputs), torch.cat(velocities)


def _minibatch(cloud: torch.Tensor) -> torch.Tensor:
    return cloud[torch.randint(len(cloud), (BATCH,))]


def fit(given: Given) -> Move:
    """The flow, its velocity trained."""
    np.random.seed(given.seed)  # noqa: NPY002 (torchcfm draws its pairs from this one)
    torch.manual_seed(given.seed)
    torch.set_num_threads(1)
    velocity = MLP(dim=given.n_dims, w=WIDTH, time_varying=True)
    optimizer = torch.optim.AdamW(
        velocity.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
    )
    pairs = Pairs(given)
    for _ in range(STEPS):
        inputs, wanted = pairs.draw()
        loss = torch.mean((velocity(inputs) - wanted) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return lambda leg: integrated(velocity, leg)


@torch.no_grad()
def integrated(velocity: torch.nn.Module, leg: Leg) -> np.ndarray:
    """Points carried along the flow."""
    x = torch.tensor(leg.points, dtype=torch.float32)
    n_steps = max(1, round((leg.end - leg.begin) * STEPS_A_UNIT))
    step = (leg.end - leg.begin) / n_steps
    for k in range(n_steps):
        s = torch.full((len(x), 1), leg.begin + k * step)
        x = x + step * velocity(torch.cat([x, s], dim=1))
    return x.double().numpy()


if __name__ == "__main__":
    serve(fit)
