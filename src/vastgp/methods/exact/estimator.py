"""The exact Gaussian process: nothing approximated, for as many rows as memory holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vastgp import _accelerator
from vastgp._arguments import OneOf, Positive
from vastgp.data import Rows, observations
from vastgp.estimators.arguments import (
    CheckpointLike,
    KernelLike,
    MaxSeconds,
    Seed,
    Tolerance,
    Verbose,
    check_fixed_model,
    fixed_kernel,
    fixed_noise_variance,
    refuse_given,
)
from vastgp.estimators.further_rows import exact_given_also
from vastgp.estimators.judging import OWN
from vastgp.estimators.searches import LEARN_OR_FIXED, Fixed, Learn
from vastgp.estimators.varying_noise import FitsVaryingNoise, NoiseLike
from vastgp.fitting.device_evidence import LEAST_ROWS
from vastgp.fitting.lbfgs import LbfgsResult
from vastgp.fitting.run import Answer, Run
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.methods.exact.learning import NOISE_FLOOR, Search, learn_by_stages, learned_rows
from vastgp.methods.exact.leave_one_out import LeaveOneOut, left_out
from vastgp.methods.exact.many_rows import condition_many, in_random_order, rows_at_once
from vastgp.methods.exact.options import MaxRows, Spill
from vastgp.methods.exact.room import check_learnable, check_room
from vastgp.solvers.exact_factor import diagnosis_of_dense
from vastgp.solvers.exact_posterior import DENSE_ROWS, ExactPosterior
from vastgp.solvers.plan import seconds_of_exact

Params = tuple[Kernel, Gaussian]
FactorDtype = Annotated[str, OneOf("float64", "float32", "auto")]
# A tile of predictions holds this many numbers of the cross-covariance, or has so many rows at least.
_TILE_ENTRIES, _LEAST_TILE, _PANEL_TILE = 4_000_000, 256, 1024
# What the learning of hyperparameters leaves of the budget, at least where the posterior of all rows takes more.
_MOST_RESERVE = 0.6
# With less of a budget an accelerator makes the factor, and the host learns: programs of the evidence took eight
# seconds of fifteen to compile on an H100, which then had no time for the posterior of all rows.
_LEARNING_ON_DEVICE = 20.0
# A factor of all variances that rows ask for where it is not the scale that is wrong: near ones contradict a noise that
# far ones left too small (protein, 17,000 rows, 60 s: intervals as wide as the prior's, NLPD 2.9).
_MOST_SCALE = 10.0


class ExactGPRegressor(FitsVaryingNoise):
    """Gaussian process regression by Cholesky factorisation, hyperparameters by their evidence.

    They maximise the evidence times a weak prior, without which few rows would be followed in all their noise
    (`vastgp.fitting.hyperparameter_prior`); from some hundred rows on it changes little.

    They are learned in stages, of 1000 rows, then of up to ``Learn(rows=...)``, and the posterior is that of all rows:
    nothing is approximated but the choice of hyperparameters, and only where there are more rows than that. Time grows
    with the cube of the rows and memory with their square. The factor of more than 5000 rows is made in panels that
    hold half of the matrix, in float32 where that does, with residuals in float64; see ``diagnosis_``.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        What is known about the function. A name (``"rbf"``, ``"matern12"``, ``"matern32"``, ``"matern52"``,
        ``"rational-quadratic"``, ``"linear"``, ``"constant"``) stands for a kernel of that form, names with ``+`` and
        ``*`` between them (``"matern32 + linear"``) for their sums and products. None: the one of RBF, Matern-5/2 and
        Matern-3/2 that has the highest evidence, or the sum of an RBF and a Matern-3/2 where that is likelier by far:
        an input can matter to one of them alone. A kernel's hyperparameters are where learning starts, in units of the
        standardised inputs and target; with ``hyperparameters="fixed"`` they are the model, in the units of inputs and
        target.
    likelihood : {"gaussian", "heteroskedastic"}, default "gaussian"
        ``"heteroskedastic"``: normal noise whose variance is a function of the inputs, of which a second process has
        the logarithm; see `vastgp.solvers.varying_noise`. Where the evidence is for one noise, it is the answer:
        ``diagnosis_["noise_varies"]``.
    hyperparameters : {"learn", "fixed"} or Learn or Fixed, default "learn"
        Whether kernel and noise are learned or are those given: objects of `vastgp.options`. ``Learn(noise_floor=...)``
        is the least noise variance that may be learned, relative to the variance of the target (1e-8: evidence of a
        function that is observed without noise has no maximum), ``Learn(rows=...)`` of how many random rows they are
        learned at most (5000, on an accelerator 20,000: an evaluation of twice the rows takes eight times as long, and
        moves them less);
        ``Fixed(noise_std=...)`` holds the noise's standard deviation, in units of the target, and the kernel is then
        the model.
    max_rows : int or Spill, optional
        More rows are refused. None: as many as fit into half of the memory that is available, or into four fifths of an
        accelerator's, 2 bytes for each pair of rows where the factor is in float32: some 75,000 with 24 GB.
        ``Spill(folder)`` of `vastgp.options`: as many as the disk of a folder holds, where the factor is kept.
    restarts : int, default 2
        How often learning begins, first at given and default values, then at random ones; the highest evidence is kept.
        Restarts use some 300 rows, so they cost little.
    max_iter : int, default 200
        Most iterations of L-BFGS.
    tol : float, default 1e-3
        Learning has converged when no derivative of the log evidence per row, by the logarithm of a hyperparameter, is
        larger, and the Newton decrement is not: some ``tol^2 / 2`` nats a row are left to gain, along flat ridges too.
        Predictions of eleven tables of 300 rows were 0.0002 to 0.002 of their deviations from those by 1e-6, and a
        fit of 2000 rows takes two thirds of the time that 1e-4 does.
    max_seconds : float, optional
        Wall-clock budget of ``fit``, checked after each iteration and before each panel of the factor; None: until
        converged. Where the posterior of all rows does not fit, it is that of as many random ones as do
        (``conditioned_rows_``), and the fit has not converged.
    checkpoint : path or SaveTo, optional
        File to save the fit to while it works, and to resume from when it exists; see `vastgp.options.SaveTo`.
    random_state : int, RandomState or None, default 0
        Seed of the restarts and of the rows that give the starting values.
    dtype : {"float64", "float32", "auto"}, default "auto"
        Of the factor of all rows; everything else is in float64. ``"float32"`` takes half the time and memory: the mean
        is then refined to full accuracy, and standard deviations where a check finds them off by more than half a
        per cent. ``"auto"``: float64 up to 10,000 rows, beyond that float32 unless the noise is too low for it and
        float64 fits into memory. On an accelerator float64 where its memory holds that: cards for computing are as fast
        in both, and on one that is not ``"float32"`` is to be asked for.
    verbose : bool, default False
        Show progress when a fit takes more than two seconds at a terminal.

    Attributes
    ----------
    log_evidence_ : float
        Log evidence (log marginal likelihood) of the training targets, in nats and in their own units; where the factor
        is in float32, with the standard error ``diagnosis_["log_evidence_se"]``.
    diagnosis_ : dict
        ``rows`` that the posterior has seen, precision of the ``factor``, ``jitter`` that it needed in standardised
        units, ``refinement_steps``, ``mean_error_bound`` (of the function's mean at any input, in noise standard
        deviations), ``variance_error`` (largest relative error of the factor's variances that the check found; above
        0.01 all are refined, which is slower: ``refined``), ``log_evidence_se``, and ``tried``, precisions that failed;
        ``late``, whether the budget ended the refinement; ``folder``, where the factor lies on a disk; where
        hyperparameters are those of some rows, ``scale``, by which the evidence of all of them corrected the variances
        of kernel and noise. With ``likelihood="heteroskedastic"`` also ``noise_varies``, ``noise_gain``, by how many
        nats the evidence is for that, and ``noise_turns``, of function and noise.
    conditioned_rows_ : ndarray of int
        Numbers of the training rows that the posterior has seen, rising: all, unless the budget was too small.

    See Also
    --------
    vastgp.QSGPRegressor : for more rows.

    References
    ----------
    Rasmussen, C. E., Williams, C. K. I. (2006). Gaussian Processes for Machine Learning, algorithm 2.1, section 5.4.1.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import ExactGPRegressor
    >>> X = np.linspace(0.0, 6.0, 40)[:, None]
    >>> model = ExactGPRegressor("rbf").fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.01)
    True
    """

    # little is compiled: what an evaluation takes is measured, and the posterior counted, see `learn_by_stages`
    _compiling_seconds: ClassVar[float] = 0.3
    # an accelerator finds the evidence of more, see `device_evidence`
    _rows_of_host: ClassVar[int] = LEAST_ROWS
    _moved: ClassVar[Mapping[str, str]] = {
        "noise_std": "hyperparameters=Fixed(noise_std=...)",
        "noise_floor": "hyperparameters=Learn(noise_floor=...)",
    }

    _order: np.ndarray
    # how many rows have a number: those of the fit, seen or not, and those that were taken in
    _numbered: int

    def __init__(
        self,
        kernel: KernelLike = None,
        *,
        likelihood: NoiseLike = "gaussian",
        hyperparameters: Annotated[str | Learn | Fixed, LEARN_OR_FIXED] = "learn",
        max_rows: Annotated[int | Spill | None, MaxRows()] = None,
        restarts: Annotated[int, Positive(integer=True)] = 2,
        max_iter: Annotated[int, Positive(integer=True)] = 200,
        tol: Tolerance = 1e-3,
        max_seconds: MaxSeconds = None,
        checkpoint: CheckpointLike = None,
        random_state: Seed = 0,
        dtype: FactorDtype = "auto",
        verbose: Verbose = False,
    ) -> None:
        self.kernel = kernel
        self.likelihood = likelihood
        self.hyperparameters = hyperparameters
        self.max_rows = max_rows
        self.restarts = restarts
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    @property
    def _arithmetic(self) -> Any:
        return "float64"

    def _check_params(self) -> None:
        super()._check_params()
        search = LEARN_OR_FIXED.resolve("hyperparameters", self.hyperparameters)
        check_fixed_model(search, self.kernel)
        refuse_given("hyperparameters", search, steps="max_iter", rate=None)
        if isinstance(self.max_rows, Spill) and self.likelihood != "gaussian":
            raise ValueError(
                "max_rows=Spill(...): with likelihood='heteroskedastic' another factor is made at every turn of "
                "function and noise, and these are kept in memory. Leave out one of the two."
            )

    def _can_spare(self, left: int, run: Run) -> bool:
        # its answers are exact at the hyperparameters that they have; but where there is no time for all rows, those
        # that are left out may as well say what these are worth
        limit, name = run.max_seconds, "time for all rows"
        if limit is None and not run.has(name):
            return False
        spare = run.once(
            name, lambda: limit is not None and self._seconds(left) > limit, is_cut=bool
        )
        return bool(spare)

    def _least_rows(self) -> int:
        return 1 if self._is_fixed else 2

    def _tile_rows(self) -> int:
        n = len(self._function.X)
        return max(_LEAST_TILE if n <= DENSE_ROWS else _PANEL_TILE, _TILE_ENTRIES // n)

    # ------------------------------------------------------------ fit

    def _answers(self, rows: Rows, run: Run) -> Iterator[Answer]:
        search = LEARN_OR_FIXED.resolve("hyperparameters", self.hyperparameters)
        dense, fixed = self._is_dense(rows.n), isinstance(search, Fixed)
        check_room(rows.n, self.max_rows, self.dtype, dense=dense)
        if not fixed:
            check_learnable(min(rows.n, search.rows or learned_rows()))
        scaling = self.standardizer_
        X, y = rows.take(np.arange(rows.n))
        assert y is not None  # fit has seen to it
        X, y = scaling.transform_X(X), scaling.transform_y(y)
        if fixed:
            kernel = fixed_kernel(self.kernel, scaling, search)
            noise = Gaussian(fixed_noise_variance(search.noise_std, scaling))
            found = LbfgsResult.unneeded(None, "hyperparameters were given"), rows.n
            yield self._condition((kernel, noise), X, y, rows, found, run)
            return
        reserve, soon = None, False
        if not self._is_dense(rows.n) and run.max_seconds is not None:
            reserve = min(self._seconds(rows.n), _MOST_RESERVE * run.max_seconds)
            soon = run.max_seconds < _LEARNING_ON_DEVICE
        with _accelerator.left_out(soon):
            search = search.given(noise_floor=NOISE_FLOOR, rows=learned_rows())
            given = Search(self.kernel, search, self.restarts, self.max_iter, self.tol)
            found = learn_by_stages(given, X, y, run, reserve)
        run.first = params = found[0].params
        yield self._condition(params, X, y, rows, found, run)

    def _is_dense(self, n: int) -> bool:
        return n <= DENSE_ROWS and self.dtype != "float32"

    def _seconds(self, n: int) -> float:
        """Return about what the posterior of n rows takes on this machine, now."""
        # a low noise needs float64
        return seconds_of_exact(n, 4 if self.dtype == "float32" else 8)

    def _condition(
        self,
        params: Params,
        X: np.ndarray,
        y: np.ndarray,
        rows: Rows,
        found: tuple[LbfgsResult, int],
        run: Run,
    ) -> Answer:
        (kernel, likelihood), n, (learned, rows_learned) = params, len(y), found
        most = n if self._is_dense(n) else rows_at_once(n, run, self.dtype, self.max_rows)
        if most is not None:
            noise = float(likelihood.noise_variance)
            seen = np.arange(n) if most == n else in_random_order(n, run)[:most]
            posterior, evidence = ExactPosterior.condition(kernel, noise, X[seen], y[seen])
            diagnosis = diagnosis_of_dense(most, posterior.factor.jitter)
        else:
            posterior, factored, seen = condition_many(
                params, X, y, run, self.dtype, self.max_rows, self._seconds(n)
            )
            evidence, diagnosis = factored.log_evidence, factored.diagnosis
        guessed = rows_learned < len(seen) and not observations.has_own_noise(y)
        # rows that are kept out tell how much noise it wants
        told = run.judged and posterior.best_scale >= _MOST_SCALE
        if guessed and not told:
            # of some rows amplitude and noise are a guess, which all rows correct at no cost
            posterior, scale, gain = posterior.at_best_scale()
            kernel, likelihood = posterior.kernel, Gaussian(posterior.noise_variance)
            evidence, diagnosis = evidence + gain, diagnosis | {"scale": scale}
        converged, reason = learned.converged, learned.message
        advice = f"give more time (max_seconds), or raise max_iter (now {self.max_iter}) or tol (now {self.tol:g})."
        if len(seen) < n:
            converged = False
            reason = f"{reason}; max_seconds was enough for the posterior of {len(seen)} random rows of {n}"
            advice = "give more time (max_seconds)."
        if diagnosis["late"]:
            off = diagnosis["mean_error_bound"]
            converged, advice = False, "give more time (max_seconds)."
            reason = (
                f"{reason}; max_seconds left means off by up to {off:.1g} deviations of the noise"
            )
        # a density per unit of the target, of n targets
        log_evidence = float(evidence - len(seen) * np.log(self.standardizer_.y_scale))
        order = rows.numbers(seen)
        return Answer(
            kernel,
            likelihood,
            lambda: posterior,
            learned.num_iter,
            reason,
            converged,
            learned.history,
            advice=advice,
            attributes={
                "log_evidence_": log_evidence,
                "diagnosis_": diagnosis,
                "conditioned_rows_": np.sort(order),
                "_order": order,
                "_numbered": rows.numbered,
            },
        )

    def _take_in(self, rows: Rows, seconds: float | None = None) -> bool:
        if self.answer_ != OWN:
            return super()._take_in(rows, seconds)
        found = exact_given_also(self, rows, seconds)
        if found is None:
            return False
        self.posterior_, evidence = found
        n = len(self.posterior_.X)
        self.log_evidence_ = float(evidence - n * np.log(self.standardizer_.y_scale))
        self.diagnosis_ = diagnosis_of_dense(n, self.posterior_.factor.jitter)
        # they have the numbers after those of the fit, whose last rows need not be among those that were seen
        self._order = np.concatenate([self._order, self._numbered + np.arange(rows.n)])
        self._numbered += rows.n
        self.conditioned_rows_ = np.sort(self._order)
        return True

    # ------------------------------------------------------------ what the factor knows

    def leave_one_out(self) -> LeaveOneOut:
        """Return what the model says of each training row given all others, in closed form.

        Kernel and noise are those of all rows. It costs what the factorisation did, ``n^3 / 3`` operations more, and
        little memory; several times that where standard deviations are refined (``diagnosis_``).

        Returns
        -------
        LeaveOneOut
            ``(mean, std, log_density)`` in units of the target, for the rows ``conditioned_rows_`` of the fit; rows of
            weight zero are not counted. The mean of ``log_density`` scores a model without rows of its own.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        ValueError
            Where the fit ended with another answer than the method's own.
        """
        check_is_fitted(self, "posterior_")
        self._check_own("leave_one_out")
        return left_out(self._function, self._order, self.standardizer_)

    # ------------------------------------------------------------ files

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = self.posterior_.to_state()
        known = {
            "log_evidence": self.log_evidence_,
            "diagnosis": self.diagnosis_,
            "numbered": self._numbered,
        }
        return state | known, arrays | {"order": self._order}

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.log_evidence_ = state["log_evidence"]
        self.posterior_ = ExactPosterior.from_state(state, arrays)
        n = len(self.posterior_.X)
        # files of older versions have none of these
        self.diagnosis_ = state.get("diagnosis") or diagnosis_of_dense(n, state["jitter"])
        self._order = arrays.get("order", np.arange(n))
        self._numbered = state.get("numbered", int(np.max(self._order)) + 1)
        self.conditioned_rows_ = np.sort(self._order)
