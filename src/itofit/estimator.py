"""FokkerPlanckProcess: the face over our solvers, from the problem to answers of the solution."""

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from itofit.compiled import keep_compiled
from itofit.devices import placed
from itofit.errors import FitWarning, InputError
from itofit.judge.records import selection_arrays, selection_values
from itofit.problem import FREE, Problem, Streams
from itofit.process.drift import AbstractDrift, members_of, potential_of
from itofit.process.ito import ItoProcess, rescaled
from itofit.process.noise import LEARN
from itofit.process_face import ProcessFace, warn_of_ending
from itofit.run_folder import registered
from itofit.simulate.step_size import is_automatic
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.solution import Solution
from itofit.solve.listeners import Listener, ProgressBar, Watch
from itofit.solve.records import ending_values, record_arrays
from itofit.solve.solver import AbstractSolver
from itofit.solvers import DEFAULT, SOLVERS, solve, solver_of, with_step_checked
from itofit.trust.bands import Bands, bands
from itofit.trust.dictionary import Coefficients, dictionary_coefficients
from itofit.trust.equations import equations
from itofit.trust.goodness import GoodnessOfFit, goodness_of_fit
from itofit.trust.identifiability import Identifiability, identifiability
from itofit.trust.next_time import NextTime, next_time
from itofit.trust.noise import covariance_interval, covariance_std
from itofit.trust.posterior import drift_draws
from itofit.trust.printed import Equations
from itofit.trust.report import report, short_report
from itofit.trust.sensitivity import Sensitivity, sensitivity
from itofit.trust.steps import StepError, step_error
from itofit.ways import mixture_of

_OTHERS = [name for name in SOLVERS if name != DEFAULT]
# Where the parameters of one solver went, which were the estimator's once.
_MOVED = {
    "preset": "solver=Adversarial() or Adversarial.paper()",
    "anchor": "solver=Moments(anchor=...) or Adversarial(anchor=...)",
    "gradient": "solver=Adversarial(gradient=...)",
    "discrepancy": "solver=Adversarial(discrepancy=...)",
    "quadrature": "solver=Adversarial(n_nodes=...), None for all steps",
    "n_iter": "solver=Moments(n_iter=...) or Adversarial(n_iter=...)",
    "batch_size": "solver=Adversarial(batch_size=...)",
    "critic_steps": "solver=Adversarial(critic_steps=...)",
    "learning_rate": "solver=Adversarial(drift_rate=..., probe_rate=...)",
    "warm_start": "solver=Adversarial(warm_start=...)",
    "n_members": "solver=Adversarial(n_members=...)",
    "options": "solver=Moments(...) or Adversarial(...), by name",
}


@registered
class FokkerPlanckProcess(ProcessFace):
    """Fit dX = g(X) dt + S(X) dW to snapshots, by the weak form of the Fokker-Planck equation.

    Snapshots are clouds of points at a few times, with no identity from one time to the next. The
    drift g is learned, and the noise S unless it is known.

    Parameters
    ----------
    sigma : str, ParametricSigma, number, array or callable
        The noise. To be learned: "learn" (one number a coordinate), "scalar", "full" (a matrix),
        "multiplicative" (sigma_i x_i), "network", "network-full" (of the state), or a
        `ParametricSigma`. Known: a number (sigma I), a vector (diagonal), a matrix S, or a function
        of the state.
    dt : float or "auto"
        Longest Euler step; "auto" chooses it from the data and checks it by step doubling.
    solver : str or solver
        "judged" (several structures of the drift, of which snapshots left out decide), "moments"
        (many fixed probes and Gauss-Newton, always with error bars), "bridge" (regression on paths
        pinned to neighbouring snapshots: the quickest), "adversarial" (Algorithm 1 of the paper),
        or `Judged(...)`, `Moments(...)`, `Bridge(...)`, `Adversarial(...)` with options.
    time_varying : bool
        Whether the drift may change with time, g(x, t), smoothly between the first and the last
        snapshot; after that it stays as it is there. Not of the adversarial solver; of the moments
        solver in fewer than 16 dimensions.
    drift : {"free", "potential"}
        Any vector field, or minus the gradient of a potential in the units of the snapshots, which
        should be the same for all coordinates. A potential leaves out rotations.
    device : {"auto", "cpu", "gpu"}
        Where to compute; "auto" is where the solver is faster.
    random_state : int or None
        Seed of everything random; None for a fresh one.
    verbose : bool
        Show a progress bar.
    **moved
        None: parameters that are a solver's are refused here, with the place they went to.

    Attributes
    ----------
    solution_ : Solution
        What the solver found, in standardised units, with what later questions need.
    process_ : ItoProcess
        Drift and diffusion in the user's units, as jax functions.
    selection_ : Selection or None
        Of a judged fit, how much each way to forecast counts and how it did on snapshots left out;
        prints as a table.
    outcome_, history_, n_iter_, seconds_ :
        How the run ended, what it logged, its iterations and seconds.
    dt_, dt_error_ : float
        The longest step of forecasts, and how far halving it moves a mean or sd, in sds. With
        dt="auto" a fit is rid of the bias of its own steps, which may be longer.
    solver_, device_, seed_, scaling_, snapshots_ :
        What was used.

    Examples
    --------
    >>> import jax
    >>> from itofit import FokkerPlanckProcess, known_system
    >>> snapshots = known_system("ou").observe(200, [0.0, 0.3, 1.0], key=jax.random.key(1))
    >>> model = FokkerPlanckProcess(0.7, random_state=0).fit(snapshots)
    >>> model.outcome_.name
    'converged'
    >>> model.predict(0.6).shape
    (200, 2)
    """

    method = DEFAULT
    aliases = tuple(_OTHERS)

    def __init__(
        self,
        sigma: Any = LEARN,
        *,
        dt: float | Literal["auto"] = "auto",
        solver: str | AbstractSolver = DEFAULT,
        time_varying: bool = False,
        drift: str = FREE,
        device: str = "auto",
        random_state: int | np.integer | None = None,
        verbose: bool = False,
        **moved: Any,
    ):
        _refuse(moved)
        self.sigma = sigma
        self.dt = dt
        self.solver = solver
        self.time_varying = time_varying
        # `drift` is the question what the drift is somewhere.
        self._drift = drift
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def __str__(self) -> str:
        """The parameters; of a fitted model a line on what was found, and why."""
        solution = getattr(self, "solution_", None)
        if solution is None:
            return repr(self)
        selection = solution.selection
        found = solution.outcome.value if selection is None else selection.line
        return f"{self!r}: {found}"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters of the constructor.

        Parameters
        ----------
        deep : bool
            Those of parameters that have parameters as well.

        Returns
        -------
        dict
            By name.

        Examples
        --------
        >>> FokkerPlanckProcess(drift="potential").get_params()["drift"]
        'potential'
        """
        return super().get_params(deep) | {"drift": self._drift}

    def set_params(self, **params: Any) -> "FokkerPlanckProcess":
        """Change parameters of the constructor.

        Parameters
        ----------
        **params
            By name.

        Returns
        -------
        FokkerPlanckProcess
            The same object.

        Examples
        --------
        >>> FokkerPlanckProcess().set_params(drift="potential")
        FokkerPlanckProcess(drift='potential')
        """
        self._drift = params.pop("drift", self._drift)
        return super().set_params(**params)

    def potential(self, x: Any, time: Any = None) -> np.ndarray:
        """The potential U(x), or U(x, t), of which the drift is minus the gradient.

        Parameters
        ----------
        x : array of shape (n_dims,) or (n, n_dims)
            One state, or rows of states.
        time : float or array, optional
            Of a drift that changes with time: one for all states, or one for every row.

        Returns
        -------
        array of shape () or (n,)
            In squared units of state per unit of time; 0 at the mean of the data.

        Raises
        ------
        InputError
            Where the drift is free.

        Examples
        --------
        With `FokkerPlanckProcess(drift="potential").fit(snapshots)`::

            model.potential([[0.0, 0.0], [1.0, 0.0]])
        """
        states = self._standardised(x)
        times = self._times_of(time, len(states.rows))
        drift = self.standard_process_.drift
        potential_of(drift.at(0.0))
        values = np.asarray(_potential(drift, states.rows, times), dtype=np.float64)
        U = self.scaling_.area * values
        return U[0, ...] if states.single else U

    @property
    def members_(self) -> list[ItoProcess]:
        """The processes of an ensemble in the user's units; of a single fit its process alone.

        Returns
        -------
        list of ItoProcess
            One a member.

        Examples
        --------
        >>> len(model.members_)
        1
        """
        self._check_fitted()
        process = self.standard_process_
        members = [ItoProcess(drift, process.diffusion) for drift in members_of(process.drift)]
        return [rescaled(member, self.scaling_) for member in members]

    def drift_std(self, x: Any, time: Any = None) -> np.ndarray:
        """The standard error of the drift.

        Of a moments fit: over other particles of the same population, and over the terms that could
        have been in the drift (docs/trust.md). Of an ensemble: the standard deviation over its
        members, which is that of the training alone.

        Parameters
        ----------
        x : array of shape (n_dims,) or (n, n_dims)
            One state, or rows of states.
        time : float or array, optional
            Of a drift that changes with time: one for all states, or one for every row.

        Returns
        -------
        array of the shape of x
            In units of state per unit of time.

        Examples
        --------
        >>> bool((model.drift_std([0.0, 0.0]) > 0).all())
        True
        """
        states = self._standardised(x)
        times = np.asarray(self._times_of(time, len(states.rows)))
        spread = drift_draws(self.solution_).spread(np.asarray(states.rows), times)
        std = self.scaling_.sd * spread
        return std[0] if states.single else std

    def covariance_std(self, x: Any) -> np.ndarray:
        """The standard error of a learned a(x) = S(x) S(x)'.

        Parameters
        ----------
        x : array of shape (n_dims,) or (n, n_dims)
            One state, or rows of states.

        Returns
        -------
        array of shape (n_dims, n_dims) or (n, n_dims, n_dims)
            Half the width of what holds 68 % of the draws.

        Examples
        --------
        >>> model.covariance_std([0.0, 0.0]).shape
        (2, 2)
        """
        states = self._standardised(x)
        std = covariance_std(self.solution_, states.rows)
        return std[0] if states.single else std

    def covariance_interval(self, x: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends about a learned a(x) = S(x) S(x)'.

        Parameters
        ----------
        x : array of shape (n_dims,) or (n, n_dims)
            One state, or rows of states.
        level : float
            Coverage of the intervals.

        Returns
        -------
        low, high : arrays of shape (n_dims, n_dims) or (n, n_dims, n_dims)
            On the diagonal, which is positive, about its logarithm.

        Examples
        --------
        >>> low, high = model.covariance_interval([0.0, 0.0])
        >>> bool((low <= high).all())
        True
        """
        states = self._standardised(x)
        low, high = covariance_interval(self.solution_, states.rows, level)
        return (low[0], high[0]) if states.single else (low, high)

    def bands(
        self,
        times: Sequence[float] | np.ndarray,
        quantiles: Sequence[float] = (0.1, 0.5, 0.9),
        *,
        level: float = 0.95,
        start: str = "initial",
    ) -> Bands:
        """Means and quantiles of a forecast with their standard errors.

        Parameters
        ----------
        times : sequence of float
            Of the forecast.
        quantiles : sequence of float
            Levels of the quantiles, between 0 and 1.
        level : float
            Coverage of the intervals.
        start : {"initial", "previous"}
            The snapshot that clouds start from.

        Returns
        -------
        Bands
            In the user's units.

        Examples
        --------
        >>> model.bands([0.6]).mean.shape
        (1, 2)
        """
        self._check_fitted()
        return bands(self.solution_, times, quantiles, level=level, start=start)

    def goodness_of_fit(self) -> GoodnessOfFit:
        """Whether the snapshots contradict the fitted process, by chi-squared; of a moments fit.

        Returns
        -------
        GoodnessOfFit
            Interval by interval and in all; prints as a table.

        Examples
        --------
        >>> len(model.goodness_of_fit().intervals)
        2
        """
        self._check_fitted()
        return goodness_of_fit(self.solution_)

    def reliability(self) -> str:
        """All that can be said of how far to believe the fit, in a few lines.

        Returns
        -------
        str
            For people to read.

        Examples
        --------
        >>> "drift: standard error" in model.reliability()
        True
        """
        self._check_fitted()
        return report(self.solution_)

    def equations(self, degree: int = 3) -> Equations:
        """The drift as a polynomial in the user's units: the terms the snapshots ask for.

        Terms are chosen among all products of up to `degree` coordinates and fitted to the
        snapshots anew, beginning at the fitted drift, be it of the moments or the adversarial
        solver. `p_value` says whether such a polynomial explains the snapshots.

        Parameters
        ----------
        degree : int
            Highest degree of a term, 1 to 5.

        Returns
        -------
        Equations
            With standard errors; prints as equations.

        Examples
        --------
        >>> model.equations(degree=1).degree
        1
        """
        self._check_fitted()
        return equations(self.solution_, degree)

    def identifiability(self, *, sigma_known: bool | None = None) -> Identifiability:
        """What the snapshots do not determine of the drift, whatever the fit chose.

        Parameters
        ----------
        sigma_known : bool, optional
            Whether sigma is taken for known; by default it is unless it was learned.

        Returns
        -------
        Identifiability
            Of a moments fit; prints as a table with remarks.

        Examples
        --------
        >>> 0.0 < model.identifiability().determined < 1.0
        True
        """
        self._check_fitted()
        return identifiability(self.solution_, sigma_known=sigma_known)

    def next_time(
        self,
        candidates: Sequence[float] | np.ndarray,
        forecast: float,
        n_points: int | None = None,
    ) -> NextTime:
        """At which of these times a further snapshot would help a forecast most.

        Parameters
        ----------
        candidates : sequence of float
            Times after the first snapshot at which there is none yet.
        forecast : float
            The time whose means should be known better.
        n_points : int, optional
            Of that snapshot; by default as many as the others have on average.

        Returns
        -------
        NextTime
            Of a moments fit; `best` is the time to take.

        Examples
        --------
        >>> model.next_time([0.6, 1.5], forecast=2.0).best in (0.6, 1.5)
        True
        """
        self._check_fitted()
        return next_time(self.solution_, candidates, forecast, n_points)

    def sensitivity(
        self,
        sigma: Any,
        times: Sequence[float] | np.ndarray | None = None,
        *,
        full: bool = False,
    ) -> Sensitivity:
        """How drift and forecast change with the sigma assumed, and which sigmas are excluded.

        Parameters
        ----------
        sigma : sequence
            Each entry is what the estimator takes as `sigma`.
        times : sequence of float, optional
            Of the forecasts; by default up to four of the snapshots' and half a span beyond.
        full : bool
            Begin every fit anew, which takes as long as the fit; else the terms of the fitted drift
            are fitted anew for each sigma.

        Returns
        -------
        Sensitivity
            Of a moments fit; prints as a table.

        Examples
        --------
        >>> len(model.sensitivity([0.6, 0.8]).rows)
        3
        """
        self._check_fitted()
        return sensitivity(self.solution_, sigma, times, full=full)

    def step_error(self, times: Sequence[float] | np.ndarray | None = None) -> StepError:
        """The error of a forecast from dt, by halving it, and the bound of Prop. 3 beside it.

        Parameters
        ----------
        times : sequence of float, optional
            Of the forecasts; by default up to four of the snapshots' and half a span beyond.

        Returns
        -------
        StepError
            Prints as a table.

        Examples
        --------
        >>> model.step_error([1.0]).mean.shape
        (1, 2)
        """
        self._check_fitted()
        return step_error(self.solution_, times)

    def dictionary_coefficients(self) -> Coefficients:
        """Coefficients of the user's own dictionary, in the user's units, with standard errors.

        Returns
        -------
        values, errors : arrays of shape (n_features, n_dims)
            The drift is `values.T @ dictionary(x)`; features without evidence are 0.

        Examples
        --------
        With `solver=Moments(dictionary=lambda x: jnp.stack([1.0, x[0], x[1]]))`::

            values, errors = model.dictionary_coefficients()
        """
        self._check_fitted()
        return dictionary_coefficients(self.solution_)

    def _learn(self, snapshots: Snapshots, watch: Watch) -> None:
        keep_compiled()
        solver = solver_of(self.solver)
        place = placed(self.device, f"the {solver.name} solver", prefers_cpu=solver.prefers_cpu)
        with jax.default_device(place.device):
            problem = self._posed(snapshots, solver)
            solution = self._solved(problem, solver, watch, place.remark)
        self._settle(solver, solution, str(place.device))

    @classmethod
    def _learn_batch(
        cls, models: Sequence["FokkerPlanckProcess"], data: Sequence[Snapshots]
    ) -> None:
        keep_compiled()
        solver = solver_of(models[0].solver)
        what = f"the {solver.name} solver"
        place = placed(models[0].device, what, prefers_cpu=solver.prefers_cpu)
        with jax.default_device(place.device):
            pairs = zip(models, data, strict=True)
            problems = [model._posed(snapshots, solver) for model, snapshots in pairs]
            solutions = [with_step_checked(one) for one in solver.solve_together(problems)]
        for model, solution in zip(models, solutions, strict=True):
            model._settle(solver, solution, str(place.device))

    def _posed(self, snapshots: Snapshots, solver: AbstractSolver) -> Problem:
        streams = Streams.of(self.random_state)
        return Problem.pose(
            snapshots,
            self.sigma,
            self.dt,
            scaling=solver.scaling(snapshots, streams),
            streams=streams,
            time_varying=self.time_varying,
            drift=self._drift,
        )

    def _solved(
        self, problem: Problem, solver: AbstractSolver, watch: Watch, remark: str | None
    ) -> Solution:
        listeners: list[Listener] = list(watch.listeners)
        if not self.verbose:
            return solve(problem, solver, listeners=listeners, checkpoints=watch.checkpoints)
        with ProgressBar("fit", remark) as bar:
            listeners.append(bar)
            return solve(problem, solver, listeners=listeners, checkpoints=watch.checkpoints)

    def _settle(self, solver: AbstractSolver, solution: Solution, device: str) -> None:
        """Keep what was learned, and warn of what should be doubted."""
        self._set(solver, solution, device)
        warn_of_ending(self.outcome_, self.dt_, self.dt_error_)
        for doubt in solution.doubts():
            warnings.warn(doubt, FitWarning, stacklevel=4)

    def _set(self, solver: AbstractSolver, solution: Solution, device: str) -> None:
        problem = solution.problem
        self.solution_ = solution
        self.selection_ = solution.selection
        self.mixture_ = mixture_of(solution)
        self.solver_ = solver
        self.method_ = solver.name
        self.device_ = device
        self.standard_process_ = solution.process
        self.scaling_ = problem.scaling
        self.outcome_ = solution.outcome
        self.history_ = solution.history
        self.n_iter_ = solution.n_iter
        self.seconds_ = solution.seconds
        self.dt_ = problem.dt
        self.dt_error_ = solution.dt_error
        self.seed_ = problem.streams.seed

    def _notes(self) -> tuple[str, ...]:
        return tuple(short_report(self.solution_))

    def _values(self) -> dict[str, Any]:
        return {
            "seed": self.seed_,
            "dt": self.dt_,
            "refinement": self.solution_.problem.refinement,
            "device": self.device_,
            "versions": {"jax": jax.__version__, "numpy": np.__version__},
            **ending_values(self.solution_),
            **self.solution_.values(),
            "selection": None if self.selection_ is None else selection_values(self.selection_),
        }

    def _arrays(self) -> dict[str, np.ndarray]:
        return {
            "scaling.mean": self.scaling_.mean,
            "scaling.sd": self.scaling_.sd,
            **record_arrays("history", self.history_),
            **self.solution_.arrays(),
            **({} if self.selection_ is None else selection_arrays(self.selection_)),
        }

    def _restore(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        solver = solver_of(self.solver)
        problem = Problem.pose(
            self.snapshots_,
            self.sigma,
            values["dt"],
            scaling=Scaling(arrays["scaling.mean"], arrays["scaling.sd"]),
            streams=Streams(values["seed"]),
            time_varying=self.time_varying,
            drift=self._drift,
        )
        problem = problem.as_fitted(
            step_given=not is_automatic(self.dt), refinement=values["refinement"]
        )
        self._set(solver, solver.restore(problem, values, arrays), values["device"])


def _refuse(moved: dict[str, Any]) -> None:
    """Refuse a parameter that is the solver's, or nobody's."""
    for name in moved:
        if name in _MOVED:
            raise InputError(
                expected=f"{name} as a parameter of the solver",
                found=f"{name} as one of FokkerPlanckProcess",
                hint=_MOVED[name],
            )
        raise InputError(
            expected="parameters that FokkerPlanckProcess knows",
            found=name,
            hint="sigma, dt, solver, time_varying, drift, device, random_state, verbose",
        )


@eqx.filter_jit
def _potential(
    drift: AbstractDrift, states: Float[Array, "n n_dims"], times: Float[Array, " n"]
) -> Float[Array, " n"]:
    """V at every state, less that at the origin of these units."""

    def height(x, t):
        V = potential_of(drift.at(t))
        return V(x) - V(jnp.zeros_like(x))

    return jax.vmap(height)(states, times)
