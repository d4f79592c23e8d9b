"""The likelihood of a classifier as it is given: a link, and weights of the classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from vastgp._arguments import OneOf, Options
from vastgp.estimators.class_weight import check_class_weight
from vastgp.likelihoods.bernoulli import LINKS


@dataclass(frozen=True, eq=False)
class Classes(Options):
    """Labels, and what their probabilities are of the function.

    Parameters
    ----------
    link : {"logit", "probit"}, default "logit"
        The logistic function, or the normal distribution function, which is for two classes. More than two have a
        function each, and the softmax of these.
    class_weight : dict, "balanced" or None, default None
        How often a row counts, by its label; labels that are not named count once. ``"balanced"``: inversely to how
        many rows the class has, as in scikit-learn.
    """

    link: Annotated[str, OneOf(*LINKS)] = "logit"
    class_weight: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_class_weight(self.class_weight)


class Links:
    """The name of a link, or `Classes`."""

    def __call__(self, name: str, value: Any) -> None:
        self.resolve(name, value)

    @staticmethod
    def resolve(name: str, value: Any) -> Classes:
        """Return what an argument stands for."""
        if isinstance(value, Classes):
            return value
        if isinstance(value, str) and value in LINKS:
            return Classes(value)
        raise ValueError(
            f"{name} must be one of {LINKS} or Classes(...) of vastgp.options; received {value!r}."
        )


CLASSES = Links()
ClassesLike = Annotated[str | Classes, CLASSES]
# Arguments that classifiers had beside `likelihood`.
MOVED_TO_CLASSES = {
    "link": "likelihood='probit', or likelihood=Classes(link=...)",
    "class_weight": "likelihood=Classes(class_weight=...)",
}
