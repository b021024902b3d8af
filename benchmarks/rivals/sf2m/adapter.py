"""[SF]2M (Tong et al. 2024) by torchcfm: Schroedinger bridges between a snapshot and the next.

dX = (v + g) ds + SIGMA dW, flow v(x, s) and score g = SIGMA^2 / 2 grad log p(x, s) regressed on
Brownian bridges whose ends are paired by exact transport of minibatches ([SF]2M-Exact), and
integrated by Euler-Maruyama. The bridge over a gap has the standard deviation SIGMA sqrt(gap) of
the same process; all else of a gap is as in OT-CFM, beyond the last snapshot too.
"""

import numpy as np
import torch
from protocol import Given, Leg, Move, serve
from torchcfm.conditional_flow_matching import SchrodingerBridgeConditionalFlowMatcher
from torchcfm.models import MLP

# github.com/atong01/conditional-flow-matching has no configuration of this method's own.
# runner/src/models/cfm_module.py, SF2MLitModule: sigma_min=0.1, score_weight=1 (defaults), and 0.1
# in examples/minibatch_effect_SF2M.py; here in standard deviations of a coordinate
SIGMA = 0.1
# runner/configs/model/sbcfm.yaml, the bridges without score: the same network as of OT-CFM
WIDTH = 64  # hidden_dims: [64, 64, 64], selu
LEARNING_RATE = 1e-3  # AdamW
WEIGHT_DECAY = 1e-5
BATCH = 128  # of each snapshot; runner/configs/datamodule/eb_full.yaml
STEPS_A_UNIT = 100  # runner/src/models/components/solver.py: dt=0.01, Euler
STEPS = 1000  # ours, as for OT-CFM


class Bridges:
    """Draws places, velocities and noise of the bridges of all pairs of snapshots together."""

    def __init__(self, given: Given):
        self.times = given.times
        self.clouds = [torch.tensor(cloud, dtype=torch.float32) for cloud in given.clouds]

    def draw(self) -> list[torch.Tensor]:
        """Inputs (x, s), velocities, weights of the score and the noise it should undo."""
        drawn = []
        for k in range(len(self.clouds) - 1):
            gap = float(self.times[k + 1] - self.times[k])
            matcher = SchrodingerBridgeConditionalFlowMatcher(sigma=SIGMA * gap**0.5)
            before = _minibatch(self.clouds[k])
            after = _minibatch(self.clouds[k + 1])
            u, x, dx_du, noise = matcher.sample_location_and_conditional_flow(
                before, after, return_noise=True
            )
            s = float(self.times[k]) + gap * u
            weight = gap * matcher.compute_lambda(u)
            drawn.append((torch.cat([x, s[:, None]], dim=1), dx_du / gap, weight[:, None], noise))
        return [torch.cat(parts) for parts in zip(*drawn, strict=True)]


def _minibatch(cloud: torch.Tensor) -> torch.Tensor:
    return cloud[torch.randint(len(cloud), (BATCH,))]


def fit(given: Given) -> Move:
    """The process, its flow and score trained together."""
    np.random.seed(given.seed)  # noqa: NPY002 (torchcfm draws its pairs from this one)
    torch.manual_seed(given.seed)
    torch.set_num_threads(1)
    flow = MLP(dim=given.n_dims, w=WIDTH, time_varying=True)
    score = MLP(dim=given.n_dims, w=WIDTH, time_varying=True)
    parameters = [*flow.parameters(), *score.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    bridges = Bridges(given)
    for _ in range(STEPS):
        inputs, velocity, weight, noise = bridges.draw()
        flow_loss = torch.mean((flow(inputs) - velocity) ** 2)
        score_loss = torch.mean((weight * score(inputs) + noise) ** 2)
        optimizer.zero_grad()
        (flow_loss + score_loss).backward()
        optimizer.step()
    return lambda leg: simulated(flow, score, leg)


@torch.no_grad()
def simulated(flow: torch.nn.Module, score: torch.nn.Module, leg: Leg) -> np.ndarray:
    """Points carried along the process."""
    x = torch.tensor(leg.points, dtype=torch.float32)
    n_steps = max(1, round((leg.end - leg.begin) * STEPS_A_UNIT))
    step = (leg.end - leg.begin) / n_steps
    for k in range(n_steps):
        s = torch.full((len(x), 1), leg.begin + k * step)
        inputs = torch.cat([x, s], dim=1)
        noise = torch.tensor(leg.rng.standard_normal(x.shape), dtype=torch.float32)
        x = x + step * (flow(inputs) + score(inputs)) + SIGMA * step**0.5 * noise
    return x.double().numpy()


if __name__ == "__main__":
    serve(fit)
