"""Learners: what the adversarial solver trains, a drift and perhaps its noise.

A drift is a function of the state; a learner knows besides how it is trained. It may begin small
and take in more, stage by stage; each of its weights has a pace; a sparse prior may pull at its
terms, and terms that the prior has pulled to zero may leave.

- `PlainLearner`: all weights of a drift, from the first iteration to the last.
- `StagedLearner`: a `StagedDrift`, in four stages.
- `CorrectionLearner`: what is added to a drift that stays as it is.
- `NoisyLearner`: a learner, and the parameters of the noise.
"""

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from itofit.process.drift import AbstractDrift, CorrectedDrift, StagedDrift
from itofit.process.ito import ItoProcess
from itofit.process.noise import LOG_UNIT, AbstractDiffusion, LearnedDiffusion

# What a staged drift computes in each stage.
_PARTS = ("affine", "affine", "polynomials", "network")
# Coefficients of an orthonormal basis can take longer strides than weights inside a network, few of
# them the longest.
_STRIDES = {"affine": 20.0, "polynomials": 10.0, "network": 10.0, "all": 0.0}
# The scale of the sparse prior, in units of the drift's speed; smaller terms leave.
_PRIOR_SCALE = 0.01
# Below this a coefficient is a zero that has been through the change of basis and back in float32.
_ROUNDING = 1e-5
# How much faster than a weight of the drift a log scale of the noise moves.
_NOISE_PACE = 5.0


class AbstractLearner(eqx.Module):
    """What is trained."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        """g(x), the drift as it is computed in training."""

    @abc.abstractmethod
    def process(self, diffusion: AbstractDiffusion) -> ItoProcess:
        """The drift with its noise, which is `diffusion` where none is learned."""

    @property
    @abc.abstractmethod
    def n_stages(self) -> int:
        """In how many stages it is trained."""

    @abc.abstractmethod
    def begin_stage(self, stage: int) -> "AbstractLearner":
        """What this stage begins with, when this is the best of those before it."""

    @abc.abstractmethod
    def at_stage(self, stage: int) -> "AbstractLearner":
        """The same weights, computing what belongs to this stage."""

    @abc.abstractmethod
    def whole(self) -> "AbstractLearner":
        """The same weights, computing all there is: learners of all stages alike."""

    @abc.abstractmethod
    def pace(self) -> "AbstractLearner":
        """How fast each weight may move, relative to the learning rate."""

    @abc.abstractmethod
    def sparse_pull(self) -> "AbstractLearner":
        """The slope of a prior that would rather have few terms; zero where there are no terms."""

    @abc.abstractmethod
    def thinned(self, now: Bool[Array, ""]) -> "AbstractLearner":
        """Without the terms that the prior has pulled to zero, if it is time."""

    @property
    @abc.abstractmethod
    def n_terms(self) -> Int[Array, ""]:
        """How many terms there are; 0 for learners without terms."""


class SingleStageLearner(AbstractLearner):
    """A learner without stages and without terms that could leave."""

    @property
    def n_stages(self) -> int:
        return 1

    def begin_stage(self, stage: int) -> "SingleStageLearner":
        del stage
        return self

    def at_stage(self, stage: int) -> "SingleStageLearner":
        del stage
        return self

    def whole(self) -> "SingleStageLearner":
        return self

    def sparse_pull(self) -> "SingleStageLearner":
        return no_pull(self)

    def thinned(self, now: Bool[Array, ""]) -> "SingleStageLearner":
        del now
        return self

    @property
    def n_terms(self) -> Int[Array, ""]:
        return jnp.zeros((), int)


class PlainLearner(SingleStageLearner):
    """All weights of a drift, at the same pace."""

    drift: AbstractDrift

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return self.drift(x)

    def process(self, diffusion: AbstractDiffusion) -> ItoProcess:
        return ItoProcess(self.drift, diffusion)

    def pace(self) -> "PlainLearner":
        return even_pace(self, 1.0)


class StagedLearner(AbstractLearner):
    """A drift that begins small and takes in more, stage by stage.

    Stage 0: every coordinate moves by itself, g_i = c (w_i + W_ii x_i); 1: affine; 2: affine and
    polynomials; 3: affine and the network. What a stage leaves out is zero, and not computed.
    """

    drift: StagedDrift

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return self.drift(x)

    def process(self, diffusion: AbstractDiffusion) -> ItoProcess:
        return ItoProcess(self.drift, diffusion)

    @property
    def n_stages(self) -> int:
        return len(_PARTS)

    def begin_stage(self, stage: int) -> "StagedLearner":
        """With every term again, those that had left at zero; the network begins at the affine
        function nearest to the drift.

        Nearest in the mean square over the data, where the basis is orthonormal: what the
        polynomials contribute is left out.
        """
        drift = self.drift
        coefficients = jnp.linalg.inv(drift.basis) @ drift.terms
        if _PARTS[stage] == "network":
            coefficients = jnp.where(self._is_affine[:, None], coefficients, 0.0)
        return StagedLearner(
            eqx.tree_at(
                lambda g: (g.coefficients, g.mask), drift, (coefficients, jnp.ones_like(drift.mask))
            )
        )

    def at_stage(self, stage: int) -> "StagedLearner":
        return StagedLearner(dataclasses.replace(self.drift, parts=_PARTS[stage]))

    def whole(self) -> "StagedLearner":
        """Computing polynomials and network, one of which is zero."""
        return StagedLearner(dataclasses.replace(self.drift, parts="all"))

    def pace(self) -> "StagedLearner":
        """Coefficients take longer strides than the network's weights."""
        parts = self.drift.parts
        still = even_pace(self, 0.0)
        network = even_pace(self.drift.network, 1.0 if parts == "network" else 0.0)
        moving = self._is_affine | (parts == "polynomials")
        stride = jnp.where(moving, _STRIDES[parts], 0.0)[:, None]
        return eqx.tree_at(
            lambda g: (g.drift.coefficients, g.drift.network), still, (stride, network)
        )

    def sparse_pull(self) -> "StagedLearner":
        """Of sum log(1 + (W / s)^2) over all terms but the constant: heavy-tailed, so that large
        terms feel little.
        """
        drift = self.drift
        if drift.parts == "network":  # it would take over what leaves
            return no_pull(self)
        W = drift.terms.at[0].set(0.0)
        pull = drift.basis.T @ (drift.mask * 2.0 * W / (W**2 + _PRIOR_SCALE**2))
        return eqx.tree_at(lambda g: g.drift.coefficients, no_pull(self), pull)

    def thinned(self, now: Bool[Array, ""]) -> "StagedLearner":
        """Without the terms below the prior's scale; the constant stays."""
        drift = self.drift
        if drift.parts == "network":
            return self
        large = jnp.abs(drift.terms) > _PRIOR_SCALE
        mask = drift.mask * jnp.where(now, large.at[0].set(True).astype(drift.mask.dtype), 1.0)
        return eqx.tree_at(lambda g: g.drift.mask, self, mask)

    @property
    def n_terms(self) -> Int[Array, ""]:
        """Those that are not zero, up to rounding in the change of basis."""
        return jnp.sum(jnp.abs(self.drift.terms) > _ROUNDING)

    @property
    def _is_affine(self) -> Bool[Array, " n_features"]:
        n_features, n_dims = self.drift.coefficients.shape
        return jnp.arange(n_features) <= n_dims


class CorrectionLearner(AbstractLearner):
    """g(x) = base(x) + correction(x): only the correction is trained."""

    base: AbstractDrift
    correction: AbstractLearner

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return self._held_base(x) + self.correction(x)

    def process(self, diffusion: AbstractDiffusion) -> ItoProcess:
        correction = self.correction.process(diffusion)
        drift = CorrectedDrift(self._held_base, correction.drift)
        return ItoProcess(drift, correction.diffusion)

    @property
    def n_stages(self) -> int:
        return self.correction.n_stages

    def begin_stage(self, stage: int) -> "CorrectionLearner":
        return CorrectionLearner(self.base, self.correction.begin_stage(stage))

    def at_stage(self, stage: int) -> "CorrectionLearner":
        return CorrectionLearner(self.base, self.correction.at_stage(stage))

    def whole(self) -> "CorrectionLearner":
        return CorrectionLearner(self.base, self.correction.whole())

    def pace(self) -> "CorrectionLearner":
        return eqx.tree_at(lambda g: g.correction, even_pace(self, 0.0), self.correction.pace())

    def sparse_pull(self) -> "CorrectionLearner":
        return eqx.tree_at(lambda g: g.correction, no_pull(self), self.correction.sparse_pull())

    def thinned(self, now: Bool[Array, ""]) -> "CorrectionLearner":
        return CorrectionLearner(self.base, self.correction.thinned(now))

    @property
    def n_terms(self) -> Int[Array, ""]:
        return self.correction.n_terms

    @property
    def _held_base(self) -> AbstractDrift:
        # Gradients in the weights of the base would be thrown away, and cost as much as those of
        # the correction.
        weights, rest = eqx.partition(self.base, eqx.is_array)
        return eqx.combine(jax.lax.stop_gradient(weights), rest)


class NoisyLearner(AbstractLearner):
    """A learner of the drift, and the noise that is learned with it."""

    learner: AbstractLearner
    diffusion: LearnedDiffusion

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return self.learner(x)

    def process(self, diffusion: AbstractDiffusion) -> ItoProcess:
        return ItoProcess(self.learner.process(diffusion).drift, self.diffusion)

    @property
    def n_stages(self) -> int:
        return self.learner.n_stages

    def begin_stage(self, stage: int) -> "NoisyLearner":
        return NoisyLearner(self.learner.begin_stage(stage), self.diffusion)

    def at_stage(self, stage: int) -> "NoisyLearner":
        return NoisyLearner(self.learner.at_stage(stage), self.diffusion)

    def whole(self) -> "NoisyLearner":
        return NoisyLearner(self.learner.whole(), self.diffusion)

    def pace(self) -> "NoisyLearner":
        """Parameters of the noise are faster than the drift's, since probes of bounded slope have
        little curvature.
        """
        faster = _NOISE_PACE * jnp.asarray(self.diffusion.form.unit() / LOG_UNIT)
        return eqx.tree_at(
            lambda g: (g.learner, g.diffusion.theta),
            even_pace(self, 0.0),
            (self.learner.pace(), faster),
        )

    def sparse_pull(self) -> "NoisyLearner":
        return eqx.tree_at(lambda g: g.learner, no_pull(self), self.learner.sparse_pull())

    def thinned(self, now: Bool[Array, ""]) -> "NoisyLearner":
        return NoisyLearner(self.learner.thinned(now), self.diffusion)

    @property
    def n_terms(self) -> Int[Array, ""]:
        return self.learner.n_terms


def learner_of(drift: AbstractDrift) -> AbstractLearner:
    """What trains this drift; of a corrected one the correction alone."""
    if isinstance(drift, StagedDrift):
        return StagedLearner(drift)
    if isinstance(drift, CorrectedDrift):
        return CorrectionLearner(drift.base, learner_of(drift.correction))
    return PlainLearner(drift)


def even_pace(tree: Any, pace: float) -> Any:
    """The same pace for every weight of a tree."""
    return jax.tree.map(lambda leaf: pace, eqx.filter(tree, eqx.is_inexact_array))


def no_pull(tree: Any) -> Any:
    """A slope of zero for every weight of a tree."""
    return jax.tree.map(jnp.zeros_like, eqx.filter(tree, eqx.is_inexact_array))
