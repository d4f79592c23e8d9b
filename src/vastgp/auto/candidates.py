"""Which models run for a table, in the order in which they are tried."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from vastgp._arguments import Named, check_arguments, declared
from vastgp.auto.series import kernel_of_series
from vastgp.auto.trees import Grown, OnTrees, has_trees, rows_told
from vastgp.estimators.likelihood_arguments import chosen_likelihood
from vastgp.estimators.registry import METHODS, estimator_class
from vastgp.kernels import Matern12, Matern32
from vastgp.solvers.large_factor import affordable_rows
from vastgp.solvers.plan import affordable_exact

# Up to here an exact process has all rows wherever results are to be the same on any machine; without a budget up to so
# many more: some minutes. With one it has as many as the budget allows.
_EXACT_ROWS, _EXACT_UNTIMED = 3000, 20_000
_LINEAR_ROWS = 2000
# What a method needs for more rows than an exact process takes, start and compilation included.
SECONDS_OF_MANY = 7.0
# Function and noise by turns, in each of five folds of few rows, or once in some thousand.
_SECONDS_OF_TURNS = 10.0
# Grids of eigenfunctions need some rows for each input.
_GRID_INPUTS = 12
# Rows from which on methods that do not grow with them are worth their own start.
MANY = 1000
# Rows from which on their nearest ones tell a scale of their own, and seconds in which these are found.
_NEAREST_ROWS, _ALONE_SECONDS = 500, 2.0
# Laws of counts: Poisson's, and such that scatter more. The last is as good as the second on nineteen tables, in two
# thirds of the time, and its mean is no exponential of the scatter.
COUNTS = ("poisson", "poisson-log-normal", "negative-binomial")
# How the leaderboard, and ``method``, call a model with trees as an input.
ON_TREES = " on trees"


@dataclass(frozen=True)
class Candidate:
    """A model that may run.

    Attributes
    ----------
    name : str
        As the leaderboard shows it.
    estimator : str
        Name of the class.
    params : dict
        Arguments of its constructor beside those that all candidates are given.
    most_rows : int, optional
        It is given a random part of more rows.
    on_trees : bool
        Whether what boosted trees say of a row is an input, see `vastgp.auto.trees`.
    quick : bool
        Whether it takes next to no time.
    needs : float
        Seconds with which it comes to an answer of its own.
    goes_on : bool
        Whether a fit to all rows begins with the hyperparameters of the race as they are, rather than with a search
        from there: it learns by another measure than the evidence that first ones are found by.
    begins_at : callable, optional
        Gives, for columns by input, the kernel that its search begins at, in standardised units.
    """

    name: str
    estimator: str
    params: dict[str, Any] = field(default_factory=dict)
    most_rows: int | None = None
    on_trees: bool = False
    quick: bool = False
    needs: float = 5.0
    goes_on: bool = False
    begins_at: Callable[[Sequence[Sequence[int]]], Any] | None = None

    def with_trees(self, rows: int | None = None) -> Candidate:
        """Return the candidate with what boosted trees say as an input, and no more rows than these tell of."""
        found = dataclasses.replace(self, name=f"{self.name}{ON_TREES}", on_trees=True)
        return found if rows is None else found.with_at_most(rows)

    def with_at_most(self, rows: int) -> Candidate:
        """Return the candidate with no more rows than so many."""
        most = rows if self.most_rows is None else min(rows, self.most_rows)
        return dataclasses.replace(self, most_rows=most)

    def make(
        self,
        *,
        seed: int,
        seconds: float | None,
        tied: Sequence[Sequence[int]] = (),
        kernel: Any = None,
        grown: Grown | None = None,
    ) -> Any:
        """Return an unfitted estimator.

        Parameters
        ----------
        seed : int
        seconds : float or None
            Its budget.
        tied : sequence of sequences of int
            Columns that are one input.
        kernel : Kernel, optional
            Where its search for hyperparameters begins, in standardised units.
        grown : Grown, optional
            Trees for its training rows, where it has some.
        """
        made = estimator_class(self.estimator)
        known = inspect.signature(made).parameters
        params: dict[str, Any] = {"max_seconds": seconds} | self.params
        if "random_state" in known:
            params["random_state"] = seed
        if kernel is None and self.begins_at is not None:
            kernel = self.begins_at(tied)
        if kernel is not None and "kernel" not in params:
            params["kernel"] = kernel
        groups = [tuple(group) for group in tied if len(group) > 1]
        if groups:
            params["hyperparameters"] = self._search(made, groups)
        model = made(**params)
        return model if grown is None else OnTrees(model, grown.trees, grown)

    def _search(self, made: Any, groups: list[tuple[int, ...]]) -> Any:
        """Return the estimator's own search for hyperparameters, with columns tied."""
        value = self.params.get(
            "hyperparameters", inspect.signature(made).parameters["hyperparameters"].default
        )
        named = next(
            check for check in declared(made)["hyperparameters"] if isinstance(check, Named)
        )
        return dataclasses.replace(named.resolve("hyperparameters", value), tied=groups)


def regressors(
    n: int,
    d: int,
    *,
    tied: bool,
    counts: bool,
    likelihood: Any,
    lawful: bool = False,
    own_noise: bool = False,
    exact_rows: int = _EXACT_ROWS,
    seconds: float | None = None,
    series: bool = False,
    dates_alone: bool = False,
) -> list[Candidate]:
    """Return the candidates for a target of numbers, those first that are preferred, and that run if time is short.

    Parameters
    ----------
    n, d : int
        Rows, and columns of the encoded inputs.
    tied : bool
        Whether some columns are one input.
    counts : bool
        Whether targets are counts, which have likelihoods of their own.
    likelihood : str or Likelihood
        "auto": normal noise, and those of counts for counts; anything else is the user's choice.
    lawful : bool, default False
        Whether counts have a law of counts, which then comes first, see `have_a_law`.
    own_noise : bool, default False
        Whether rows have known errors or weights, which not all methods take.
    exact_rows : int
        Most rows that an exact process is given, see `most_exact_rows`: random ones where there are more.
    seconds : float, optional
        Of the whole fit. Trees are left out where they would take too much of it.
    series : bool, default False
        Whether rows are judged by how they go on in time.
    dates_alone : bool, default False
        Whether inputs are dates alone: trees know nothing of those that come, and are sure of it.

    Notes
    -----
    The exact process comes first whatever the rows, as scales of the target are compared by it in seconds. Within a
    minute it has ten to twenty thousand rows, and what is exact for these says more of others than what is approximate
    for all (60 s, NLPD of test rows, exact and the best of QSGP, SWSGP's variational solver and t-SVGP: kin40k -1.01
    and -0.47, protein 0.70 and 0.74, bike -5.6 and -2.4, pol -1.23 and -1.00). Where there are many, what is exact for
    the rows nearest to each says most (20 s: kin40k -1.06, protein 0.55, houseelectric_200k -2.76).
    """
    if not isinstance(likelihood, str) or likelihood not in ("auto", "gaussian"):
        return [
            Candidate("tsvgp", "TSVGPRegressor", {"likelihood": likelihood}),
            Candidate("svgp", "SVGPRegressor", {"likelihood": likelihood}),
            Candidate("swsgp", "SWSGPRegressor", {"likelihood": likelihood}),
        ]
    trees = has_trees(n, d, seconds) and not (series and dates_alone)
    told = rows_told(n, d, seconds)
    few = n <= _EXACT_ROWS
    processes = [_EXACT, *_OF_SERIES]
    if n > exact_rows:
        processes = [one.with_at_most(exact_rows) for one in processes]
    exact, *of_series = processes
    nearest = _NEAREST if likelihood == "auto" and not own_noise else _NEAREST_ONE_NOISE
    local = [nearest, *([nearest.with_trees(told)] if trees else [])]
    varying = _of_noise(trees, told, few) if likelihood == "auto" and not counts else []
    # on a slow machine the second of many rows may be the last
    found = [exact, _LINEAR] if few else [exact, nearest, _LINEAR, *local[1:]]
    near = local if few and n >= _NEAREST_ROWS else []
    # what finds noise that varies gains most where it does; of some hundred rows turns of both take a second or two
    if n <= MANY:
        early, varying = varying[:1], varying[1:]
    else:
        early, near = near[:1], near[1:]
    if series:
        found = [*of_series, *found]
    found += [*early, *([exact.with_trees(told)] if trees else []), *near]
    laws = _LAWS if counts and likelihood == "auto" else []
    found += laws
    many_on_trees = [_QSGP.with_trees(told)] if trees else []
    # of few rows what the noise is like matters more than how the function is approximated
    found += varying if few else [*many_on_trees, *varying]
    if n > MANY:
        found.append(_QSGP)
        found.append(Candidate("tsvgp", "TSVGPRegressor"))
        found.append(Candidate("direct", "DirectRegressor"))
        if d <= _GRID_INPUTS and not tied:
            found.append(Candidate("grief", "GriefRegressor"))
        found.append(Candidate("iterative", "IterativeGPRegressor"))
    if lawful and laws and not series:  # which no law of counts has a trend for
        found = [laws[-1], *(one for one in found if one != laws[-1])]
    if not few:
        found = [dataclasses.replace(one, needs=max(one.needs, SECONDS_OF_MANY)) for one in found]
    return [one for one in found if not own_noise or _takes_own_noise(one)]


def alone(found: Sequence[Candidate], seconds: float) -> Candidate:
    """Return the candidate that runs where there is time for one.

    The first, or where there are some hundred rows what is predicted from the nearest of them: within 5 s it is better
    than the exact process of some of many rows (NLPD of test rows: kin40k -1.11 and -0.58, protein 0.57 and 1.10).
    """
    wanted = [one for one in found if one.name == _NEAREST.name and seconds > _ALONE_SECONDS]
    if found[0].name in {law.name for law in _LAWS}:
        return found[0]
    # what is near says little of what comes
    in_time = [one for one in found if one.begins_at is not None]
    return next(iter([*in_time, *wanted, *found]))


def most_exact_rows(seconds: float | None, timed: bool = True, enough: int | None = None) -> int:
    """Return the most rows whose exact posterior takes no more than the budget, and fits into the memory, in float32.

    Parameters
    ----------
    seconds : float or None
        Of the whole fit; None: no limit.
    timed : bool, default True
        Whether the clock and the memory may decide: not where results are to be the same on any machine.
    enough : int, optional
        Rows beyond which nobody asks.
    """
    if not timed:
        return _EXACT_ROWS
    held = affordable_rows(itemsize=4)
    if seconds is None:
        return max(min(_EXACT_UNTIMED, held), _EXACT_ROWS)
    return max(min(affordable_exact(seconds, 4, enough), held), _EXACT_ROWS)


def of_exposure(
    n: int, d: int, *, method: str, likelihood: Any, seconds: float | None = None
) -> list[Candidate]:
    """Return the candidates for counts with exposures: methods that take these, with laws of counts.

    Parameters
    ----------
    n, d : int
        Rows, and columns of the encoded inputs.
    method : str
        "auto", or the name of one.
    likelihood : str or Likelihood
        "auto": Poisson's law, and one that scatters more; anything else is the user's choice.
    seconds : float, optional
        Of the whole fit, as in `regressors`.

    Raises
    ------
    ValueError
        For a method or a likelihood that has no use for exposures.
    """
    given = isinstance(likelihood, str) and likelihood == "auto"
    laws: Sequence[Any] = COUNTS if given else [likelihood]
    if not given and not chosen_likelihood(likelihood, "GPRegressor").counts:
        raise ValueError(
            f"exposure multiplies the rate of counts, and likelihood={likelihood!r} is of other targets. Set "
            f"likelihood='auto' or one of {', '.join(map(repr, COUNTS))}, or leave exposure out."
        )
    if method != "auto":
        plain = named(method, False, "auto")
        if "exposure" not in inspect.signature(estimator_class(plain.estimator).fit).parameters:
            raise ValueError(
                f"method={method!r} takes no exposure. Use method='tsvgp' or 'svgp', or 'auto', which races what does."
            )
        return [_with_law(plain, law, given) for law in laws]
    sparse = Candidate("tsvgp", "TSVGPRegressor")
    linear = Candidate("linear", "TSVGPRegressor", {"kernel": "linear"}, _LINEAR_ROWS)
    in_time = has_trees(n, d, seconds)
    trees = [sparse.with_trees(rows_told(n, d, seconds))] if in_time else []
    # what the law is like matters more than steps, and of few events a line is hard to beat
    first, *more = [_with_law(sparse, law, given) for law in laws]
    found = [first, _with_law(linear, laws[0], given), *more]
    found += [_with_law(one, law, given) for law in laws for one in trees]
    return found if given else [*found, Candidate("svgp", "SVGPRegressor", {"likelihood": laws[0]})]


def _with_law(candidate: Candidate, law: Any, named_so: bool) -> Candidate:
    """Return a candidate with a law of counts, which its name tells where there are several."""
    name, trees = candidate.name.removesuffix(ON_TREES), candidate.on_trees
    name = (f"{name}, {law}" if named_so else name) + (ON_TREES if trees else "")
    return dataclasses.replace(candidate, name=name, params=candidate.params | {"likelihood": law})


_EXACT = Candidate("exact", "ExactGPRegressor")
_OF_SERIES = [
    Candidate(name, "ExactGPRegressor", begins_at=partial(kernel_of_series, rough))
    for name, rough in (("exact, trend", Matern32), ("exact, walk", Matern12))
]
# Kernel and noise are learned twice: by the evidence of some rows, and by what rows are given their nearest others.
_NEAREST_ONE_NOISE = Candidate(
    "nearest", "SWSGPRegressor", {"solver": "nearest"}, needs=10.0, goes_on=True
)
# On scales of the rows' own: see `vastgp.methods.swsgp.local_scale`.
_NEAREST = dataclasses.replace(
    _NEAREST_ONE_NOISE, params=_NEAREST_ONE_NOISE.params | {"likelihood": "heteroskedastic"}
)
_LINEAR = Candidate(
    "linear", "ExactGPRegressor", {"kernel": "linear"}, most_rows=_LINEAR_ROWS, quick=True
)
_QSGP = Candidate("qsgp", "QSGPRegressor")
_LAWS = [Candidate(f"tsvgp, {name}", "TSVGPRegressor", {"likelihood": name}) for name in COUNTS]


def _of_noise(trees: bool, told: int | None, few: bool) -> list[Candidate]:
    """Return candidates for noise that varies, and for targets far out.

    Of few rows the exact process learns both function and noise in seconds (concrete, 8 s: NLPD -0.26, t-SVGP 0.08);
    of more it takes several times as long as with one noise, and t-SVGP, which has both from the start, does not.
    """
    process = _EXACT if few else Candidate("tsvgp", "TSVGPRegressor")
    varying = dataclasses.replace(
        process,
        name=f"{process.name}, heteroskedastic",
        params=process.params | {"likelihood": "heteroskedastic"},
        needs=_SECONDS_OF_TURNS if few else process.needs,
    )
    far = Candidate("tsvgp, student-t", "TSVGPRegressor", {"likelihood": "student-t"})
    if not trees:
        return [varying, far]
    on_trees = [varying.with_trees(told), far.with_trees(told)]
    return [varying, far, *on_trees] if few else [*on_trees, varying, far]


def _takes_own_noise(candidate: Candidate) -> bool:
    """Whether a candidate has normal noise, and takes that of the rows."""
    takes = inspect.signature(estimator_class(candidate.estimator).fit).parameters
    return "noise_std" in takes and "likelihood" not in candidate.params


def named(method: str, classes: bool, likelihood: Any) -> Candidate:
    """Return the candidate that a method's name stands for.

    Raises
    ------
    ValueError
        For a name that is none; the message lists them.
    """
    ending = "Classifier" if classes else "Regressor"
    methods = {
        name.removesuffix("-classifier"): estimator
        for name, estimator in METHODS.items()
        if estimator.endswith(ending)
    }
    if isinstance(method, str) and method.removesuffix(ON_TREES) != method:
        return named(method.removesuffix(ON_TREES), classes, likelihood).with_trees()
    if not classes and method == _NEAREST.name and likelihood in ("auto", "gaussian"):
        return _NEAREST if likelihood == "auto" else _NEAREST_ONE_NOISE
    if not isinstance(method, str) or method not in methods:
        names = methods if classes else [*methods, _NEAREST.name]
        raise ValueError(
            f"method must be 'auto' or one of {', '.join(map(repr, names))}; received {method!r}."
        )
    params = {} if likelihood == "auto" else {"likelihood": likelihood}
    made = estimator_class(methods[method])
    if params and "likelihood" not in inspect.signature(made).parameters:
        raise ValueError(
            f"likelihood={likelihood!r} is not for method={method!r}, whose noise is normal. Use method='tsvgp' or "
            "'auto', or leave likelihood out."
        )
    check_arguments(made(**params))
    return Candidate(method, methods[method], params)
