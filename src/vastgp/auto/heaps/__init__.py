"""Targets with heaps: a share of the rows has exactly one value, most often zero, and the rest is continuous.

No density describes such a target: at a value that is repeated it may be as high as one likes. A **model of two parts**
(Cragg 1971; Mullahy 1986) does: the probability of each heap, by a classifier, and a density of the rest, by a
regressor, on the scale that suits the rest alone. With ``p_k(x)`` the probability of the heap at ``h_k``, and
``p_0(x)`` that of none, an observation has

    P(y = h_k | x) = p_k(x),        p(y | x) = p_0(x) f(y | x)  elsewhere,

a density by the measure that counts the heaps and measures lengths elsewhere. Its logarithm,

    log p(y | x) = log p_{part of y}(x) + [y is at no heap] log f(y | x),

is a proper score, and a sum of which each term depends on one part alone. The best model of two parts is therefore the
best classifier with the best regressor, each found by a race of its own on the same held-out rows: the two parts are
the frame around two races, and no candidates within one (`vastgp.auto.two_parts`). A continuous candidate has no mass
at a heap, and with it the score minus infinity there, whatever its density: which targets are modelled in two parts is
decided before, by what the target holds (`rule`). What can be compared with it is the probability of the interval that
a target was rounded to, ``log P(|Y - y| <= w/2)``, which both have (`interval_log_score`).
"""

from vastgp.auto.heaps.distribution import HeapedDistribution, interval_log_score
from vastgp.auto.heaps.rule import TWO_PART, Heap

__all__ = ["TWO_PART", "Heap", "HeapedDistribution", "interval_log_score"]
