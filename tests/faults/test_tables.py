"""Whatever the table, a fit ends in an answer that keeps its promises, or in a refusal that names what is wrong."""

import re

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import vastgp
from odd_fields import Axis, OddField, odd_fields
from odd_tables import LABELS, Column, OddTable, odd_tables
from promises import Refused, check_classifier, check_field, check_regressor, no_strange_warnings
from vastgp.kernels import RBF, Constant, Linear, Periodic
from vastgp.kernels.metric import metric_lengthscales

# Few shapes: each is compiled for.
TABLES = odd_tables(rows=(2, 12), columns=1)
# A failure is told as it was drawn: to make it smaller takes minutes of fits.
FEW = settings(
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def held(check, *given):
    """Whether a table was fitted, rather than refused."""
    try:
        check(*given)
    except Refused:
        return False
    return True


@settings(FEW, max_examples=25)
@given(TABLES)
def test_exact(table):
    held(check_regressor, "ExactGPRegressor", table)


@settings(FEW, max_examples=10)
@given(TABLES)
def test_discrete_weights(table):
    held(check_regressor, "DirectRegressor", table)


@settings(FEW, max_examples=6)
@given(TABLES, st.sampled_from(sorted(LABELS)), st.sampled_from([1, 2, 2]))
def test_classes(table, kind, count):
    held(check_classifier, "TSVGPClassifier", table, table.labels(kind, count))


@settings(FEW, max_examples=12)
@given(odd_fields(sizes=(2, 6), dimensions=2))
def test_fields(field):
    held(check_field, field)


@pytest.mark.parametrize(
    ("field", "named"),
    [
        (OddField((Axis(6, "a NaN"),)), "coordinate 'a' is not finite at position 3"),
        (
            OddField((Axis(2), Axis(6, "repeated"))),
            "coordinate 'b' has the value 0.0 more than once",
        ),
        (OddField((Axis(1),)), "dimension 'a' has 1 point"),
        (
            OddField((Axis(2, "labels"), Axis(2)), gaps="a half"),
            "no observed value with a='output 0'",
        ),
        (
            OddField((Axis(6, "objects"), Axis(2, "labels"))),
            "dimension 'a' and dimension 'b' of data_array",
        ),
        (OddField(gaps="all but one"), "data_array has 1 observed value of 6"),
        (OddField(values="an infinity"), "data_array has 1 infinite values, the first at a=1"),
        (OddField(dtype="complex128"), "data_array must hold real numbers"),
    ],
)
def test_a_field_that_cannot_be_fitted_is_refused_by_dimension_or_argument(field, named):
    with pytest.raises(Refused, match=re.escape(named)):
        check_field(field)


# Tables that an estimator once fell over.
FELL = {
    "a variance that float32 has not": (
        "QSGPRegressor",
        OddTable(12, (Column("uniform"),), "smooth", -25, seed=1),
    ),
    "slopes beyond float64": (
        "ExactGPRegressor",
        OddTable(40, (Column("normal", -128, -1e6),), "line", 104, 0.0, 0.5, seed=41),
    ),
    "noise that varies around a constant": (
        "ExactGPRegressor, heteroskedastic",
        OddTable(2, (Column("clusters", -64),), "two values", 0, -3.0, 0.0, "uint16", seed=1541),
    ),
    "an average of one part": (
        "ExactGPRegressor",
        OddTable(
            12,
            (Column("one-hot", 150, 1e9), Column("almost constant", 150, 1e3)),
            "two values",
            0,
            1e3,
            seed=156338,
        ),
    ),
    "near repetitions that were others in another order": (
        "ExactGPRegressor",
        OddTable(40, (Column("two values"), Column("uniform")), "constant but one", seed=1),
    ),
}


@pytest.mark.parametrize("name", FELL)
def test_what_once_fell_stands(name):
    assert held(check_regressor, *FELL[name])


def test_a_slope_that_no_number_has_is_the_nearest_that_one_has():
    kernel = Linear([1.0, 1e-150]).in_units([1e-140, 1e142], 1e22)
    limits = np.finfo(np.float64)
    np.testing.assert_array_equal(kernel.slope_variances, [limits.max, limits.tiny])


@pytest.mark.parametrize(
    "kernel", [lambda v: RBF(1.0, v), Constant, lambda v: Periodic(1.0, 1.0, v), Linear]
)
def test_hyperparameters_in_units_are_of_float64_whatever_the_fit_is(kernel):
    """Variances of 1e-60 and 1e60 are no numbers in float32: a model was saved that could not be loaded."""
    leaves = jax.tree.map(np.float32, jax.tree.leaves(kernel(2.0)))
    single = jax.tree.unflatten(
        jax.tree.structure(kernel(2.0)), [np.asarray(leaf) for leaf in leaves]
    )
    for unit in (1e-30, 1e30):
        with no_strange_warnings():
            found = single.in_units(1.0, unit)
        np.testing.assert_allclose(float(found.total_variance()), 2.0 * unit**2, rtol=1e-6)


def test_lengthscales_of_a_metric_do_not_overflow():
    with no_strange_warnings():
        found = metric_lengthscales(RBF([1e-160, 1e150], 1e300) + RBF([1e-160, 1e150], 1.0), 2)
    np.testing.assert_allclose(found, [1e-160, 1e150])


def test_one_class_is_told_as_it_was_written():
    with pytest.raises(ValueError, match=r"one class only \(7 in all 3 rows\)"):
        vastgp.TSVGPClassifier().fit(np.eye(3), np.full(3, 7))
