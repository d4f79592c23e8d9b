"""Fits whose noise varies: the method's own, given noise of the rows' own, by turns with that noise."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from vastgp._arguments import OneOf
from vastgp.data import Rows
from vastgp.data.minibatch import fixed_rows
from vastgp.estimators.arguments import input_units
from vastgp.estimators.own_noise import FitsOwnNoise
from vastgp.estimators.searches import Fixed, Learn
from vastgp.fitting.run import Answer, First, OutOfTime, Run
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian, HeteroskedasticGaussian
from vastgp.solvers.log_noise import LogNoise, learn_log_noise
from vastgp.solvers.varying_noise import (
    Alternated,
    NoisyFunction,
    alternate,
    expected_squares,
    function_state,
    with_own_noise,
)

VARYING = HeteroskedasticGaussian.name
NoiseLike = Annotated[str, OneOf(Gaussian.name, VARYING)]
# Rows on which function and noise are learned by turns; of the noise alone, which costs far less.
_FEW, _MANY = 1000, 20_000
# Of what is left of a budget: for the fit with one noise, for the turns (where they were of all rows, one solution is
# what comes after them), and for the first of two fits with what they found.
_PLAIN, _TURNS, _TURNS_OF_ALL, _FIRST_FIT = 0.4, 0.3, 0.7, 0.5
# Uses of the seed, see `fixed_indices`.
_OF_FEW, _OF_MANY = 120, 121
_TILE = 16_384
_NOT_LOOKED = "max_seconds left no time to see whether the noise varies"


class FitsVaryingNoise(FitsOwnNoise):
    """A regressor with ``likelihood="heteroskedastic"``; it comes before the class that fits.

    Its ``_answers`` are those of normal noise, of the rows' own where they have some.
    """

    several_functions: ClassVar[bool] = True
    # whether it goes on learning on all rows from hyperparameters that are known, see `Run.known`
    _learns_from_known: ClassVar[bool] = False

    likelihood: Any
    kernel: Any
    hyperparameters: Any

    def _of_normal_noise(self) -> Any:
        """Return a copy with normal noise, which takes that of the rows' own."""
        alone = self._copy(keep=True)
        alone.likelihood = Gaussian.name
        return alone

    @property
    def _is_varying(self) -> bool:
        given = self.likelihood
        return isinstance(given, HeteroskedasticGaussian) or (
            isinstance(given, str) and given == VARYING
        )

    @property
    def _varies_by_itself(self) -> bool:
        """Whether the method's own fit finds how noise varies, in place of turns with a process of it."""
        return False

    def _check_own_noise(self, given: str) -> None:
        if self._is_varying:
            raise ValueError(
                f"{given} says what the rows' noise is, and likelihood='{VARYING}' learns it. Set "
                f"likelihood='gaussian', or leave {given} out."
            )
        super()._check_own_noise(given)

    def _check_params(self) -> None:
        if self._is_varying and self._is_fixed:
            raise ValueError(
                f"likelihood='{VARYING}' learns how the noise varies, which hyperparameters='fixed' rules out. Set "
                "likelihood='gaussian' with noise_std of the rows in fit, or let hyperparameters be learned."
            )
        super()._check_params()

    def _last_answer(self, rows: Rows, run: Run) -> Answer:
        if not self._is_varying or self._varies_by_itself:
            return super()._last_answer(rows, run)
        return _Fit(self, rows, run).answer()

    @property
    def _function(self) -> Any:
        """The posterior of the function, without that of the noise."""
        found = self.posterior_
        return found.function if isinstance(found, NoisyFunction) else found

    # ------------------------------------------------------------ files

    def _posterior_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        both = self.posterior_
        if not isinstance(both, NoisyFunction):
            return super()._posterior_state()
        alone = self._copy(keep=True)
        alone.posterior_ = both.function
        return both.to_state(alone._posterior_state())

    def _restore_posterior(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        state, arrays, noise = function_state(state, arrays)
        super()._restore_posterior(state, arrays)
        if noise is not None:
            self.posterior_ = NoisyFunction(self.posterior_, noise)


class _Solved(NamedTuple):
    """A method's answer and its posterior, given the log noise (None: one noise for all)."""

    answer: Answer
    posterior: Any
    noise: LogNoise | None


class _Fit:
    """One fit: with one noise, by turns on some rows, then of all rows with the noise that these found."""

    def __init__(self, model: Any, rows: Rows, run: Run) -> None:
        self.model, self.rows, self.run = model, rows, run
        self.scaling = model.standardizer_
        search = model.hyperparameters
        self.inputs = () if model._isotropic else model._tied(rows.d)
        self.learns = search == "learn" or isinstance(search, Learn)

    def answer(self) -> Answer:
        """Return the answer with noise that varies, or that with one noise where the data say so."""
        plain = self._plain()
        if self.run.out_of_time:
            return _not_looked(plain.answer)
        with self.run.timed("varying noise"):
            found, gain = self._turns(plain)
        if found is None or gain <= 0.0:
            if found is not None and found.late:
                return _not_looked(plain.answer)
            return _told(plain.answer, {"noise_varies": False, "noise_gain": gain})
        solved, complete = self._solve_all(plain, found)
        if solved is None:
            reason = (
                f"{plain.answer.reason.rstrip('.')}. max_seconds left no time for noise that varies"
            )
            answer = _told(plain.answer, {"noise_varies": False, "noise_gain": gain})
            return dataclasses.replace(answer, converged=False, reason=reason)
        return self._varying(plain, solved, found, gain, complete)

    def _plain(self) -> _Solved:
        alone = self.model._of_normal_noise()
        part = self.run.part("one noise", _PLAIN, self.run.known)
        try:
            answer = alone._last_answer(self.rows, part)
        finally:
            self.run.first, self.run.cut_short = part.first, part.cut_short
        posterior = answer.posterior()
        return _Solved(dataclasses.replace(answer, posterior=lambda: posterior), posterior, None)

    def _turns(self, plain: _Solved) -> tuple[Alternated | None, float]:
        """Return what turns on some rows found, None where there was nothing to find, and the gain in nats."""
        kernel, noise = plain.answer.kernel, float(plain.answer.likelihood.noise_variance)  # type: ignore[attr-defined]
        # few rows may show it only when the function is learned beside it
        few = self.rows.n <= _FEW
        gain = 0.0
        if not few:
            looked = learn_log_noise(*self._squares(plain), seed=self.run.seed, inputs=self.inputs)
            gain = looked.gain
            if gain <= 0.0:
                return None, gain
        X, y = fixed_rows(self.rows, self.scaling, self.run.seed, _OF_FEW, _FEW)
        # a constant is off by nothing at any row, and the noise of nothing has no logarithm
        if np.ptp(y) == 0.0:
            return None, gain
        left = self.run.seconds_left(_TURNS_OF_ALL if few else _TURNS)
        found = alternate(
            X, y, kernel, noise,
            seed=self.run.seed, inputs=self.inputs, noise_floor=self._noise_floor(),
            deadline=None if left is None else self.run.deadline - self.run.seconds_left() + left,  # type: ignore[operator]
        )  # fmt: skip
        return found, found.gain if few else gain

    def _solve_all(self, plain: _Solved, found: Alternated) -> tuple[_Solved | None, bool]:
        """Return the answer of all rows, None where there was no time for one, and whether it is complete."""
        noise, kernel, solved = found.learned.posterior, found.kernel, None
        several = self.rows.n > _FEW
        for number in range(1 + several):
            share = _FIRST_FIT if several and number == 0 else 1.0
            if self.run.out_of_time:
                return solved, False
            learn = self.learns and number == 0 and self.model._learns_from_known
            try:
                solved = self._solve(kernel, noise, self.run.part(f"noise {number}", share), learn)
            except OutOfTime:
                return solved, False
            if number < several:
                # of all rows the noise is known better than of some
                assert solved.answer.kernel is not None
                kernel = solved.answer.kernel
                noise = learn_log_noise(
                    *self._squares(solved), seed=self.run.seed, start=noise.kernel
                ).posterior
        return solved, solved is not None and solved.answer.converged

    def _solve(self, kernel: Kernel, noise: LogNoise, run: Run, learn: bool) -> _Solved:
        """Return the method's answer with the noise of each row given."""
        alone, scaling = self.model._of_normal_noise(), self.scaling
        variance = float(np.exp(noise.level))
        if learn:
            run.known = (First(kernel, Gaussian(variance)),)
        else:
            alone.kernel = kernel.in_units(
                input_units(scaling, self.model._isotropic), scaling.y_scale
            )
            alone.hyperparameters = Fixed(
                noise_std=float(variance**0.5 * scaling.y_scale),
                isotropic=self.model._isotropic,
                tied=getattr(self.model.hyperparameters, "tied", None),
            )
        y = np.asarray(self.rows.y[:], np.float64)
        rows = dataclasses.replace(self.rows, y=with_own_noise(y, self._relative(noise)))
        answer = alone._last_answer(rows, run)
        posterior = answer.posterior()
        return _Solved(dataclasses.replace(answer, posterior=lambda: posterior), posterior, noise)

    def _relative(self, noise: LogNoise) -> np.ndarray:
        """Return the noise variance of each row over that of the level."""
        parts = [
            noise.effective_variances(self.scaling.transform_X(X))
            for X, _ in self.rows.batches(_TILE)
        ]
        return np.concatenate(parts)

    def _squares(self, solved: _Solved) -> tuple[np.ndarray, np.ndarray]:
        X, y = fixed_rows(self.rows, self.scaling, self.run.seed, _OF_MANY, _MANY)
        return expected_squares(
            solved.posterior, X.astype(np.dtype(self.model._arithmetic), copy=False), y
        )

    def _noise_floor(self) -> float:
        return float(getattr(self.model.hyperparameters, "noise_floor", None) or 1e-6)

    def _varying(
        self, plain: _Solved, solved: _Solved, found: Alternated, gain: float, complete: bool
    ) -> Answer:
        """Return the answer with both posteriors."""
        noise, answer = solved.noise, solved.answer
        assert noise is not None
        likelihood = HeteroskedasticGaussian(float(np.exp(noise.level)))
        posterior = NoisyFunction(solved.posterior, noise)
        told = _told(answer, {"noise_varies": True, "noise_gain": gain, "noise_turns": found.turns})
        if "log_evidence_" in told.attributes:
            # the factor knows that given the noise
            of_noise = noise.evidence_cost(solved.posterior.X)
            bound = told.attributes["log_evidence_"] - of_noise
            told = dataclasses.replace(told, attributes={**told.attributes, "log_evidence_": bound})
        reason, converged = plain.answer.reason, plain.answer.converged and complete
        if not complete:
            reason, converged = f"{answer.reason.rstrip('.')}, with noise that varies", False
        return dataclasses.replace(
            told,
            likelihood=likelihood,
            posterior=lambda: posterior,
            n_iter=plain.answer.n_iter + answer.n_iter,
            history=plain.answer.history,
            reason=reason,
            converged=converged,
            advice=plain.answer.advice if complete else "give more time (max_seconds).",
        )


def _not_looked(answer: Answer) -> Answer:
    """Return an answer with one noise, which there was no time to compare with noise that varies."""
    reason = f"{answer.reason.rstrip('.')}. {_NOT_LOOKED}"
    return dataclasses.replace(answer, converged=False, reason=reason)


def _told(answer: Answer, told: dict[str, Any]) -> Answer:
    """Return an answer whose diagnosis says more."""
    attributes = dict(answer.attributes)
    attributes["diagnosis_"] = {**attributes.get("diagnosis_", {}), **told}
    return dataclasses.replace(answer, attributes=attributes)
