"""Rows that judge the answers of a fit, kept out of it where they can be spared, and what an answer says of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from vastgp.data import (
    Places,
    Rows,
    held_out_indices,
    observations,
    processes,
    repeated,
    without,
)
from vastgp.data.minibatch import fixed_indices, standardised_rows
from vastgp.estimators.simple_answers import MORE_ROWS, SUBSET, rows_of_subset, simple_answer
from vastgp.fitting.run import Answer, Run
from vastgp.likelihoods import Gaussian
from vastgp.linalg.cholesky import Cholesky
from vastgp.linalg.least_near import least_near
from vastgp.solvers.exact_posterior import ExactPosterior
from vastgp.solvers.linear_model import LinearPosterior

# What the method's own answer is called.
OWN = "own"
# From `_least_to_spare` of the model on some rows are kept out of the fit to judge by, more of fewer rows than this; of
# fewer still none can be spared, unless many are copies: by their targets, which they have twice, whoever follows them
# is best, and sure of what is between them (wine, 240 of 1440 rows: relevance vectors had a mean log density of 2.2
# there, and of -74 at new rows).
_MANY, _LEAST_WITH_COPIES, _COPIES = 2000, 400, 0.05
_SPARED, _SPARED_OF_FEWER, _MOST_SPARED = 0.05, 0.1, 500
# Numbers in inputs up to which rows are looked through for others that repeat them: a second, and four times the memory
# that they take. Of more rows, and of those in files, each is kept out by itself.
_COMPARED_ENTRIES = 20_000_000
# The method's own answer gives way to one that is better by this many nats a row; where it has converged also by twice
# the standard error of that.
CLEARLY, DOUBT = 0.02, 2.0
# Share of rows kept out that are to be within so many deviations at least, and where it is less beyond doubt.
_HELD, _NOMINAL, _WITHIN = 0.93, 0.95, 1.96
# Logarithms of how many times as much noise is looked for, and their error.
_LOG_TIMES, _TIMES_ERROR = np.arange(0.0, 11.0), 0.01
# An answer of few rows is held against the average of what they leave open, on so many targets drawn from that where
# there are no rows: it gives way where it expects them by so many nats a row less. Of 17 random tables of 11 to 303
# rows all methods of few functions that lost a quarter, but one of 11 rows, were behind the average on new rows; of
# those that lost less one in four was ahead. A method that approximates the process of its kernel has no view of its
# own to defend: of ten answers on eleven tables of 4 to 456 rows that lost 0.1 to 0.25 nine were behind (by up to 3.1;
# yacht by QSGP).
_IMAGINED, ASTRAY, ASTRAY_OF_KERNEL = 500, 0.25, 0.1
# Rows that tell how much noise the exact posterior of some others has at least, and how few tell nothing.
_OTHERS, _FEWEST_OTHERS = 4096, 500
# Uses of the seed, see `fixed_indices`.
_JUDGING_ROWS, _IMAGINING, _OTHER_ROWS = 112, 113, 114


class Judged(NamedTuple):
    """An answer, the fitted attributes that it makes, and mean log densities at the places that judge.

    ``fair`` says that each was given without its own target; ``left_out`` are those that were, of an answer that others
    of its rows are compared with as it is; ``predicted`` is what a method whose noise is normal says of them; ``wider``
    that it was sure of what is not so, and has more noise for that.
    """

    name: str
    answer: Answer
    attributes: dict[str, Any]
    scores: np.ndarray
    fair: bool = False
    left_out: np.ndarray | None = None
    predicted: Any = None
    wider: bool = False

    @property
    def score(self) -> float:
        """Mean log density; minus infinity where there is none."""
        return _mean(self.scores)

    def is_exact_of(self, rows: Rows) -> bool:
        """Return whether it is the exact posterior of all rows."""
        return _is_of_all(self.attributes["posterior_"], rows)

    @property
    def scores_of_others(self) -> np.ndarray:
        """Log densities, each without its own target where that is known."""
        return self.scores if self.left_out is None else self.left_out

    @property
    def of_others(self) -> float:
        """Their mean; minus infinity where there is none."""
        return _mean(self.scores_of_others)


def kept(name: str, answer: Answer, model: Any, run: Run) -> Any:
    """Return a copy of a model with an answer, which has a name."""
    found = model._copy(keep=True)
    found.answer_ = name
    with run.timed("posterior"):
        found._keep(answer, run)
    return found


def expected(judged: Judged, rows: Rows, model: Any, run: Run) -> float:
    """Return the mean log density that an answer has for rows."""
    return float(np.mean(_densities(_fitted(model, judged), rows, run)))


def _fitted(model: Any, judged: Judged) -> Any:
    """Return a model whose answer is one that was judged."""
    found = object.__new__(type(model))
    found.__dict__ = judged.attributes
    return found


def _is_of_all(posterior: Any, rows: Rows) -> bool:
    return isinstance(posterior, ExactPosterior) and len(posterior.X) == rows.n


def _may_have_gone_astray(answer: Answer, posterior: Any) -> bool:
    """Return whether a method's answer is one of hyperparameters that were not learned to the end, of a dense factor.

    Its rows say nothing of them: of 3489 rows of 146 columns, 15 s, a noise of 4e-7 and lengthscales of 0.001 had 6.9
    nats more than there is, and -6.3 of new rows. What each is given by the others costs another factor.
    """
    dense = isinstance(posterior, ExactPosterior) and isinstance(posterior.factor, Cholesky)
    return dense and type(answer.likelihood) is Gaussian and not answer.converged


def _mean(scores: np.ndarray) -> float:
    mean = float(np.mean(scores))
    return mean if np.isfinite(mean) else -np.inf


class Judge:
    """Rows kept out of the fit, or rows of it where there are few, and what an answer says of them.

    Attributes
    ----------
    spared : bool
        Whether rows are kept out.
    training : Rows
        What is left of them.
    out : Rows or None
        Those that are kept out, of which ``rows`` judge.
    apart : bool
        Whether the exact posterior of some rows has seen few of those that judge.
    rows : Rows
    """

    def __init__(self, model: Any, rows: Rows, run: Run) -> None:
        groups = _repetitions(rows) if rows.n >= _LEAST_WITH_COPIES else None
        enough = rows.n >= model._least_to_spare
        self.spared = enough or (groups is not None and _has_copies(rows))
        if self.spared:
            # rows that repeat each other say no more than one: 500 of 13,600 rows were of 33 of their 680 places
            places = rows.n if groups is None else int(np.max(groups)) + 1
            share = _SPARED if places >= _MANY else _SPARED_OF_FEWER
            most = round(_MOST_SPARED * rows.n / places)
            out = held_out_indices(rows.n, share, run.seed, most, groups)
            self.spared = model._can_spare(rows.n - len(out), run)
        self.apart = self.spared or rows.n >= 2 * MORE_ROWS
        self.out: Rows | None = None
        if self.spared:
            self.training = without(rows, out)
            self.out = self._with(*rows.take(out))
            judging = np.arange(len(out)) if groups is None else _of_many_places(groups[out])
            chosen = out[judging]
            assert self.out.y is not None
            self.rows = self._with(self.out.X[judging], self.out.y[judging])
        else:
            chosen = np.sort(fixed_indices(run.seed, _JUDGING_ROWS, rows.n, _MOST_SPARED))
            self.training, groups = rows, None
            self.rows = self._with(*rows.take(chosen))
        self.chosen, self._scale = chosen, 1.0
        self._places = Places.of(groups, chosen)

    def __call__(self, name: str, answer: Answer, model: Any, run: Run) -> Judged:
        """Return an answer and its scores; the model is left as it was."""
        trial = kept(name, answer, model, run)
        predicted = None
        alone = name == SUBSET or (name == OWN and _may_have_gone_astray(answer, trial.posterior_))
        alone = alone and not self.spared and _is_of_all(trial.posterior_, self.training)
        if alone:
            # rows of the fit would flatter whoever follows them: each is given by all others
            scores = trial.posterior_.leave_one_out().log_density[self.chosen]
        elif name == OWN and self._tells_noise(answer):
            predicted = self._predicted(trial, run)
            scores = processes.from_first(self._density(predicted, trial))
        else:
            scores = _densities(trial, self.rows, run)
        if name == SUBSET and not self.spared and not alone:
            scores, alone = self._of_some_rows(trial.posterior_, scores, run)
        left_out, likelihood = None, answer.likelihood
        # of few rows the line is an average, of which there is no such thing
        line = isinstance(trial.posterior_, LinearPosterior)
        if line and not self.spared and isinstance(likelihood, Gaussian):
            # of 1875 rows with 300 columns a line said 0.2 nats more than of new ones
            X, y = standardised_rows(self.rows, trial.standardizer_, np.arange(self.rows.n))
            given = trial.posterior_.leave_one_out(X, y, float(likelihood.noise_variance))
            left_out = self._places.means(given.log_density)
        fair = alone or self.spared
        scores = self._places.means(scores)
        return Judged(name, answer, trial.__dict__, scores, fair, left_out, predicted)

    def _of_some_rows(
        self, posterior: Any, scores: np.ndarray, run: Run
    ) -> tuple[np.ndarray, bool]:
        """Return scores by the exact posterior of some rows in which these are given by each other, if it knows that.

        By their own targets whoever follows them most closely would be best.
        """
        if not isinstance(posterior, ExactPosterior) or not isinstance(posterior.factor, Cholesky):
            return scores, False
        with run.timed("comparison"):
            given = processes.from_first(posterior.leave_one_out().log_density)
        own = rows_of_subset(run.seed, self.training.n, len(given))
        place = np.searchsorted(own, self.chosen)
        place = np.minimum(place, len(own) - 1)
        return np.where(own[place] == self.chosen, given[place], scores), True

    def _tells_noise(self, answer: Answer) -> bool:
        """Return whether rows kept out tell how large the one noise of an answer is."""
        normal = type(answer.likelihood) is Gaussian
        return self.spared and normal and not observations.has_own_noise(self.training.y)

    def _predicted(self, model: Any, run: Run) -> Any:
        """Return the distributions of a fitted model at the rows, its time counted as comparison."""
        with run.timed("comparison"):
            return model._reader("_predictive")(self.rows)

    def _density(self, predicted: Any, model: Any) -> np.ndarray:
        """Return the log densities of the rows' standardised targets."""
        with np.errstate(all="ignore"):
            return predicted.log_density(self.rows.y) + np.log(model.standardizer_.y_scale)

    def at_best_scale(self, answer: Answer, model: Any, run: Run) -> Answer:
        """Return the exact posterior of some rows with all variances times what rows kept out say of them.

        ``log p(y_i | s) = -1/2 z_i^2 / s - 1/2 log s`` is largest at the mean of ``z_i^2``, squares of distances in
        deviations; but 95 % intervals are to hold most of the rows, whatever a few far ones make of that. The noise is
        no less than what the other rows of the fit say.
        """
        posterior, likelihood = answer.posterior(), answer.likelihood
        if not isinstance(likelihood, Gaussian) or not isinstance(posterior, ExactPosterior):
            return answer
        if not self.spared or observations.has_own_noise(self.training.y):
            return answer
        X, y = standardised_rows(self.rows, model.standardizer_, np.arange(self.rows.n))
        mean, variance = posterior.mean_and_latent_variance(X)
        z = processes.from_first((y - mean) / np.sqrt(variance + float(likelihood.noise_variance)))
        squares = self._places.means(z**2)
        scale, error = float(np.mean(squares)), float(np.std(squares)) / len(squares) ** 0.5
        if not abs(scale - 1.0) > DOUBT * error:
            scale = 1.0
        scale = max(scale, float(np.quantile(squares, _HELD)) / _WITHIN**2)
        if np.isfinite(scale):
            self._scale = scale
        square, within = (
            float(np.mean(self._places.means(part)))
            for part in processes.from_first(np.stack([(y - mean) ** 2, variance]))
        )
        return self._with_noise_of_others(self.at_same_scale(answer), square, within, model, run)

    def _with_noise_of_others(
        self, answer: Answer, square: float, within: float, model: Any, run: Run
    ) -> Answer:
        """Return the exact posterior of some rows with the noise that random others of the fit show.

        By how much the mean square of their distances from their means is more than ``square``, that of the places kept
        out, where the variance ``within`` is the function's: ``-1/2 (log T + S / T)`` is largest at ``T = S``, and what
        is added has to be clearly likelier. A place that rows come to again counts as often as they do: places that
        count once each are no sample of what scatters there (kegg, where one of 15,800 places has 4240 of 48,800 rows:
        NLPD -0.06, the methods' own answers -0.8 to -0.97), nor five hundred of them of what is rare.
        """
        posterior, n = answer.posterior(), self.training.n
        chosen = fixed_indices(run.seed, _OTHER_ROWS, n, _OTHERS + len(posterior.X))
        others = np.setdiff1d(chosen, rows_of_subset(run.seed, n, len(posterior.X)))
        if len(others) < _FEWEST_OTHERS:
            return answer
        others = others[:: -(-len(others) // _OTHERS)]
        X, y = standardised_rows(self.training, model.standardizer_, others)
        squares = processes.from_first((y - posterior.mean(X)) ** 2)
        assert isinstance(answer.likelihood, Gaussian)
        noise = float(answer.likelihood.noise_variance)
        more = float(np.mean(squares)) - square
        # those of the others that are more than the places have, at which the fit has its scale
        times = more / (self._scale * within + noise)
        if not (more > 0.0 and 0.5 * (times - np.log1p(times)) > CLEARLY):
            return answer
        return simple_answer(answer.kernel, Gaussian(noise + more), posterior)

    def at_same_scale(self, answer: Answer) -> Answer:
        """Return the exact posterior of other rows with the variances that `at_best_scale` found."""
        if self._scale == 1.0:
            return answer
        scaled = answer.posterior().at_scale(self._scale)
        return simple_answer(scaled.kernel, Gaussian(scaled.noise_variance), scaled)

    def widened(self, own: Judged, model: Any, run: Run) -> Judged:
        """Return the method's answer with as much noise as rows kept out ask for, where that is more beyond doubt.

        Where 95 % intervals hold fewer of them, that is the least ``s^2`` for which ``(y_i - m_i)^2 <= 1.96^2 (v_i +
        s^2)`` at 95 % of the places; where they are likelier, that by which they are likeliest: what else is compared
        has its scale from them, too. All stays as it is unless the rows are then likelier.
        """
        found, scale = own.predicted, model.standardizer_.y_scale
        if found is None:
            return own
        assert isinstance(own.answer.likelihood, Gaussian)
        noise = float(own.answer.likelihood.noise_variance)
        latent = (found.std / scale) ** 2 - noise
        off = ((np.asarray(self.rows.y) - found.mean) / scale) ** 2
        needed = processes.from_first(self._places.means(off / _WITHIN**2 - latent))
        doubt = DOUBT * (_HELD * (1.0 - _HELD) / len(needed)) ** 0.5
        wanted, sure = noise, not float(np.mean(needed <= noise)) >= _HELD - doubt
        if sure:
            wanted = float(np.quantile(needed, _NOMINAL))
        wanted = max(wanted, float(processes.from_first(self._likeliest_noise(off, latent, noise))))
        if wanted == noise or not np.isfinite(wanted):
            return own
        reason = (
            f"{own.answer.reason.rstrip('.')}; the noise variance is {wanted / noise:.3g} times what was learned, as "
            "rows kept out of the fit are farther from their means"
        )
        answer = replace(own.answer, likelihood=Gaussian(wanted), reason=reason)
        wider = {"likelihood_": answer.likelihood.in_units(scale), "stop_reason_": reason}
        again = own._replace(answer=answer, attributes=own.attributes | wider, wider=sure)
        # by the model itself: some take their noise from elsewhere
        scores = self._places.means(_densities(_fitted(model, again), self.rows, run))
        again = again._replace(scores=scores)
        return again if again.score > own.score else own

    def _likeliest_noise(self, off: np.ndarray, latent: np.ndarray, noise: float) -> np.float64:
        """Return the noise variance by which the places are likeliest.

        That is the one that is there unless they are clearly likelier with it, and by more than one parameter gains
        from nothing: twice that is chi-squared, above four of once in twenty times.

        Parameters
        ----------
        off : ndarray of shape (n,)
            Squares of the rows' distances from their means.
        latent : ndarray of shape (n,)
            Variances of the function.
        noise : float
        """

        def densities(log_noise: float) -> np.ndarray:
            total = latent + np.exp(log_noise)
            return self._places.means(-0.5 * (np.log(total) + off / total))

        tried = np.log(noise) + _LOG_TIMES
        with np.errstate(all="ignore"):
            best = least_near(lambda at: -float(np.mean(densities(at))), tried, _TIMES_ERROR)
            gains = densities(best) - densities(tried[0])
        # NaN of an answer that went astray gains nothing
        worth = np.mean(gains) > max(CLEARLY, 2.0 / len(gains))
        return np.float64(np.exp(best) if worth else noise)

    def imagined(self, exact: Judged, model: Any, run: Run) -> Rows:
        """Return rows where there are none, with targets drawn from the exact posterior of those of the fit.

        Their columns are those of the rows, each in an order of its own. What an answer's mean log density lacks there
        is its divergence from that posterior: a method of few functions, or with a search of its own, can follow rows
        closely and be sure of what is between them.
        """
        generator = np.random.default_rng([run.seed, _IMAGINING])
        X = self.training.take(np.arange(self.training.n))[0]
        X = np.stack([generator.choice(column, _IMAGINED) for column in X.T], axis=1)
        levels = generator.uniform(size=(1, _IMAGINED))
        places = self._with(X, np.zeros(_IMAGINED))
        return self._with(
            X, _fitted(model, exact)._reader("_predictive")(places).quantiles(levels)[0]
        )

    def _with(self, X: np.ndarray, y: Any) -> Rows:
        """Return rows with the names of these."""
        return Rows(X, y, self.training.feature_names, self.training.target_name, checked=True)


def _repetitions(rows: Rows) -> np.ndarray | None:
    """Return the group of each row, see `repeated`; None where there are none, or they would cost too much."""
    if not rows.in_memory or rows.n * rows.d > _COMPARED_ENTRIES:
        return None
    return repeated(rows.take(np.arange(rows.n))[0])


def _of_many_places(groups: np.ndarray) -> np.ndarray:
    """Return which rows judge, at most so many, of as many groups as there are: the first of each, and so on."""
    order = np.argsort(groups, kind="stable")
    sizes = np.unique(groups, return_counts=True)[1]
    rank = np.empty(len(groups), np.int64)
    rank[order] = np.concatenate([np.arange(size) for size in sizes])
    return np.sort(np.argsort(rank, kind="stable")[:_MOST_SPARED])


def _has_copies(rows: Rows) -> bool:
    """Return whether many of some rows repeat another to the last digit, target included."""
    X, y = rows.take(np.arange(rows.n))
    return len(np.unique(np.column_stack([X, y]), axis=0)) <= (1.0 - _COPIES) * rows.n  # type: ignore[list-item]


def _densities(model: Any, rows: Rows, run: Run) -> np.ndarray:
    """Return what a fitted model says of rows (of several processes, the first), its time counted as comparison."""
    with run.timed("comparison"), np.errstate(all="ignore"):
        return processes.from_first(model._log_densities(rows))
