"""How any estimator is fitted: its arguments checked, its answers taken, its result committed whole."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from vastgp._arguments import KnownArguments, Options, check_arguments
from vastgp._precision import precision
from vastgp._warn import warn
from vastgp.data import processes
from vastgp.estimators.arguments import seed_from
from vastgp.estimators.saved import SavedModel
from vastgp.estimators.searches import Fixed, SaveTo, Subset, save_to
from vastgp.estimators.serialise import fit_fingerprint
from vastgp.estimators.sharing import SharedRows, check_processes
from vastgp.fitting.checkpoint import Checkpoint
from vastgp.fitting.checkpoint_lock import alone_with
from vastgp.fitting.clock import now
from vastgp.fitting.compilation import compile_seconds, let_go_of_many
from vastgp.fitting.interrupts import Interrupts
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.run import Answer, First, Run
from vastgp.kernels import Kernel
from vastgp.kernels.metric import tied_columns

# Arguments that say how long to work and what to show, not what is computed.
_NOT_OF_THE_RESULT = ("max_seconds", "max_iter", "max_rows", "verbose", "checkpoint")


class FittedModel(KnownArguments, SavedModel, abc.ABC):
    """The fit of rows and of grids.

    A fit works on a copy, which takes the place of the estimator when it is complete: one that fails or is interrupted
    leaves the estimator as it was. A subclass has constructor arguments that are declared in its signature (see
    `vastgp._arguments`), ``dtype``, ``verbose``, ``max_seconds`` and ``random_state`` among them, and

    - ``_check_params()``, for what declarations cannot say;
    - ``_answers(data, run)``: a sequence of `Answer`, each complete, each better than the one before;
    - ``_take(answer)``: set ``kernel_`` and ``likelihood_`` in the user's units.
    """

    dtype: Any
    verbose: Any
    max_seconds: Any
    random_state: Any
    checkpoint: Any = None
    # where several processes, each with a part of the rows, come to one answer; None: nowhere
    _shared_rows: ClassVar[SharedRows | None] = None

    def _check_params(self) -> None:
        """Refuse arguments that do not go together."""

    @abc.abstractmethod
    def _answers(self, data: Any, run: Run) -> Iterator[Answer]:
        """Give answers, each better than the one before."""

    @abc.abstractmethod
    def _take(self, answer: Answer) -> None:
        """Set the attributes of an answer, in the user's units."""

    @property
    def _isotropic(self) -> bool:
        """Whether all inputs have one scale and one lengthscale."""
        search = getattr(self, "hyperparameters", None)
        return bool(getattr(search, "isotropic", False))

    def _tied(self, num_features: int) -> tuple[int, ...] | None:
        """Return the number of the input that each column belongs to, see `Subset.inputs`.

        Where nothing is said of that it is as the kernel's parts tie columns, whose lengthscales are in one unit.
        """
        search, kernel = getattr(self, "hyperparameters", None), getattr(self, "kernel", None)
        told = search.inputs(num_features) if isinstance(search, (Subset, Fixed)) else None
        if told is None and isinstance(kernel, Kernel):
            return tied_columns(kernel, num_features)
        return told

    @property
    def _is_fixed(self) -> bool:
        """Whether the hyperparameters are given."""
        given = getattr(self, "hyperparameters", None)
        return given == "fixed" or isinstance(given, Fixed)

    def set_params(self, **params: Any) -> Any:
        """Set constructor arguments, those of objects among them by ``name__argument``; see scikit-learn.

        Raises
        ------
        TypeError
            For an argument that has moved; the message says where to.
        ValueError
            For an unknown argument, or one of an object where a name or None stands.
        """
        self.refuse_moved(params)
        for name in params:
            owner, inside, inner = name.partition("__")
            held = params.get(owner, getattr(self, owner, self))
            if inside and not hasattr(held, "set_params"):
                raise ValueError(
                    f"{name} cannot be set, as {owner} is {held!r}: give {owner} an object that has {inner!r} first, "
                    "as kernel=vastgp.RBF() for kernel__lengthscales."
                )
        return super().set_params(**params)

    # ------------------------------------------------------------ fit

    # What the next fit need not look for, and what the last one began with.
    _known_firsts: Sequence[First] = ()
    _first_found: First | None = None

    def _fit_whole(
        self,
        open_data: Callable[[Any], Any],
        answers: Callable[[Any, Any, Run], Iterator[Answer]] | None = None,
        *,
        keep: bool = False,
    ) -> Any:
        """Fit what ``open_data(work)`` opens, on a copy; return the estimator.

        Parameters
        ----------
        open_data : callable
            Opens the training data and sets what is learned of them alone, on the copy that it is given.
        answers : callable, optional
            ``answers(work, data, run)`` where they are not those of `_answers`, as of an update.
        keep : bool, default False
            Whether the copy begins with what was fitted before, as an update does.
        """
        began = now()
        work = self._copy(keep)
        with Interrupts.watch() as interrupts, compile_seconds() as compiling, ExitStack() as held:
            check_arguments(work)
            check_processes(work)
            with precision(work._arithmetic):
                pass
            work._check_params()
            let_go_of_many()
            data = open_data(work)
            # drawn once, by process 0 of several: whatever the fit draws follows from it
            seed = int(processes.from_first(np.int64(seed_from(work.random_state))))
            file = None if keep else work._file_of(data, seed, held)
            if file is not None:
                seed = file.fingerprint["seed"]
            run = Run(
                work.max_seconds, file,
                verbose=bool(work.verbose), seconds=now() - began, seed=seed,
                known=[
                    one for one in work.__dict__.pop("_known_firsts", ())
                    if work._begins_with(one.kernel, data)
                ],
            )  # fmt: skip
            if not keep:
                work._on_host = work._is_sooner_on_host(data, run)
            with work._at_work():
                if answers is None:
                    answer = work._settle(data, run)
                else:
                    answer = _last_of(answers(work, data, run), run)
                    work._keep(answer, run)
            interrupts.raise_if_seen()
            work._first_found = None if run.first is None else First(*run.first, not run.cut_short)
            work.history_.spent = run.spent | {"compilation": compiling()}
            work.fit_seconds_ = run.elapsed() + (self.fit_seconds_ if keep else 0.0)
            self.__dict__ = work.__dict__
            # an interruption between the two leaves both the model and the file
            if file is not None:
                _finish(file, answer)
        if not answer.converged and answer.advice is not None:
            self._warn_of(answer)
        return self

    def _begins_with(self, kernel: Any, data: Any) -> bool:
        """Whether a search may begin with a kernel that the fit of another method found."""
        del kernel, data
        return True

    def _is_sooner_on_host(self, data: Any, run: Run) -> bool:
        """Whether an accelerator, if there is one, is not worth the compilation of its programs."""
        del data, run
        return False

    def _settle(self, data: Any, run: Run) -> Answer:
        """Fit, set the attributes of the answer that is kept, and return it."""
        answer = self._last_answer(data, run)
        self._keep(answer, run)
        return answer

    def _last_answer(self, data: Any, run: Run) -> Answer:
        """Return the method's best answer that the budget allows: the latest."""
        return _last_of(self._answers(data, run), run)

    def _copy(self, keep: bool) -> Any:
        """Return a copy, without fitted attributes unless they are kept.

        Private attributes stay: scikit-learn has some, such as the callbacks of a search.
        """
        work = object.__new__(type(self))
        work.__dict__ = {
            name: value
            for name, value in self.__dict__.items()
            if keep or name.startswith("_") or not name.endswith("_")
        }
        return work

    def _file_of(self, data: Any, seed: int, held: ExitStack) -> Checkpoint | None:
        """Return where the fit is saved, which is its own until ``held`` ends; None where nothing is saved."""
        place = save_to(self.checkpoint)
        if place is None:
            return None
        processes.together(lambda: _hold(place, held))
        params = {
            name: value.without_limits() if isinstance(value, Options) else value
            for name, value in self.get_params(deep=False).items()
            if name not in _NOT_OF_THE_RESULT
        }
        fingerprint = fit_fingerprint(type(self).__name__, params, data, seed)
        # a fit whose seed nobody gave goes on with the one that it drew when it began
        drawn = ("seed",) if self.random_state is None else ()
        file = Checkpoint(place.path, place.every_seconds, fingerprint=fingerprint, drawn=drawn)
        held.enter_context(file.blamed())
        return file

    def _keep(self, answer: Answer, run: Run) -> None:
        """Set what is known of the fit, and its posterior."""
        self._take(answer)
        for name, value in answer.attributes.items():
            setattr(self, name, value)
        self.n_iter_, self.converged_ = int(answer.n_iter), bool(answer.converged)
        self.stop_reason_, self.history_ = answer.reason, answer.history
        self.history_.phases.update(
            {
                name: records
                for name, records in run.histories.items()
                if records is not self.history_
            }
        )
        self.posterior_ = answer.posterior()

    def _warn_of(self, answer: Answer) -> None:
        """Say that the fit is not complete, and what to do."""
        advice = f"; {answer.advice}" if answer.advice else "."
        warn(f"{type(self).__name__} did not converge: {answer.reason}{advice}", ConvergenceWarning)


def _last_of(answers: Iterator[Answer], run: Run) -> Answer:
    """Return the best answer that the budget allows: the latest."""
    best = None
    for answer in answers:
        best = answer
        if run.out_of_time:
            break
    assert best is not None, "no answer was given"
    return best


def _hold(place: SaveTo, held: ExitStack) -> None:
    """Hold the right to write the file, in the process that does."""
    if processes.number() == 0:
        held.enter_context(alone_with(place.path))


def _finish(file: Checkpoint, answer: Answer) -> None:
    """Remove the file of a complete fit; keep that of one whose budget was used up, for a larger one."""
    ends = [saved.ended["reason"] for saved in file.phases.values() if saved.ended]
    # a simple answer in the place of one that ran out of time says so among other things
    if not answer.converged and (OUT_OF_TIME in ends or "max_seconds" in answer.reason):
        file.write()
    else:
        file.remove()
