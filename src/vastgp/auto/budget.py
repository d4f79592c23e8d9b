"""How the seconds of a fit are dealt out among its race and what comes after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vastgp.auto.candidates import SECONDS_OF_MANY, Candidate

# Share of the budget for the race; what is left is the winner's, on all rows. Of few rows a fit takes a second or two,
# and the winner needs no more.
RACE, _RACE_OF_FEW, _FEW_ROWS = 0.5, 0.65, 1500
# With less time than this no models are compared: one runs, and is calibrated on rows kept out of it. Of few rows so
# much less as they are fewer.
_SECONDS_OF_A_RACE, _AT_LEAST = 12.0, 3.0
# Of many rows not with less than so many times what a candidate needs, which two in the race would have half of: one
# that has all of the time is better.
_NEEDS_OF_A_LARGE_RACE = 4.0
# Candidates with less time than this are not begun: compiling their programs takes as much.
_LEAST_SECONDS, _LEAST_OF_FEW = 4.0, 1.5


class Dealt(NamedTuple):
    """What there is time for.

    Attributes
    ----------
    races : bool
        Whether models are compared.
    compares_scales : bool
        Whether there is time to compare scales of the target, where one model runs alone.
    of_race : float or None
        Seconds of the race; None: no limit.
    least : float
        Seconds without which no further candidate begins.
    """

    races: bool
    compares_scales: bool
    of_race: float | None
    least: float


def dealt(left: float | None, n: int, candidates: Sequence[Candidate], scales: int) -> Dealt:
    """Return what there is time for.

    Parameters
    ----------
    left : float or None
        Seconds of the fit that are left; None: no limit.
    n : int
        Rows.
    candidates : sequence of Candidate
    scales : int
        Of the target, that are tried.

    Notes
    -----
    Of seventeen kinds of tables, mean NLPD of new rows where one model ran or the race had half of the time, and so: 90
    rows in 8 s -0.55 and -0.67, 700 rows in 8 s -1.06 and -1.28, in 15 s -1.20 and -1.29.
    """
    few = n <= _FEW_ROWS
    shortest = max(_SECONDS_OF_A_RACE * min(n / _FEW_ROWS, 1.0), _AT_LEAST)
    needs = candidates[0].needs
    share = _RACE_OF_FEW if few else RACE
    if len(candidates) == scales == 1:
        share = 1.0
    return Dealt(
        left is None
        or left >= (_NEEDS_OF_A_LARGE_RACE * needs if needs >= SECONDS_OF_MANY else shortest),
        left is not None and left >= shortest,
        None if left is None else share * left,
        _LEAST_OF_FEW if few else _LEAST_SECONDS,
    )
