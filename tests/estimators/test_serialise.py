"""Constructor arguments as plain data, the fingerprints of fits, and what `load` refuses."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vastgp
from vastgp._parameters import Parameters
from vastgp.data import as_rows, write_archive
from vastgp.estimators.registry import ESTIMATORS, OPTIONS, estimator_class, option_class
from vastgp.estimators.serialise import decode_params, encode_params, fit_fingerprint
from vastgp.kernels import RBF, Matern32
from vastgp.likelihoods import Softmax, StudentT


@dataclasses.dataclass(frozen=True)
class Rare(Parameters):
    """Options of a solver."""

    rank: int = 3
    start: Any = None


PARAMS = {
    "none": None,
    "flag": True,
    "count": 3,
    "number": 0.1 + 0.2,
    "infinite": float("inf"),
    "text": "rbf",
    "numpy": np.float32(0.5),
    "path": Path("some") / "file",
    "array": np.arange(6.0).reshape(2, 3),
    "kernel": RBF([1.0, 1.0 / 3.0]) + Matern32(2.0),
    "likelihood": StudentT(0.1 + 0.2, 4.0),
    "classes": Softmax(3, class_weights=[1.0, 2.0, 3.0]),
    "options": Rare(2, Rare(start=[RBF(3.0), np.arange(3.0)])),
    "nested": [1, (2.5, RBF(0.7)), None],
}


@pytest.fixture
def rare(monkeypatch):
    monkeypatch.setitem(OPTIONS, "Rare", __name__)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Rare.__module__])


def test_arguments_come_back_as_they_were(rare):
    plain, arrays = encode_params(PARAMS)
    again = decode_params(json.loads(json.dumps(plain)), arrays)
    for name in ("none", "flag", "count", "number", "infinite", "text", "numpy", "path"):
        assert again[name] == PARAMS[name] and isinstance(again["flag"], bool)
    np.testing.assert_array_equal(again["array"], PARAMS["array"])
    assert repr(again["kernel"]) == repr(PARAMS["kernel"])
    np.testing.assert_array_equal(
        again["kernel"].parts[0].lengthscales, PARAMS["kernel"].parts[0].lengthscales
    )
    assert isinstance(again["nested"][1], tuple) and again["nested"][1][0] == 2.5
    assert float(again["nested"][1][1].lengthscales) == 0.7
    assert again["likelihood"].scale == 0.1 + 0.2
    assert again["classes"].class_weights == (1.0, 2.0, 3.0)
    outer = again["options"]
    assert isinstance(outer, Rare) and outer.rank == 2 and outer.start.rank == 3
    assert outer.start.start[0].lengthscales == 3.0
    np.testing.assert_array_equal(outer.start.start[1], np.arange(3.0))


def test_a_file_makes_only_objects_on_the_list():
    with pytest.raises(ValueError, match=r"thing=Rare\(rank=3, start=None\) cannot be stored"):
        encode_params({"thing": Rare()})
    with pytest.raises(ValueError, match="the file holds 'Rare', which this version does not know"):
        decode_params({"thing": {"options": ["Rare", {}]}}, {})


def test_names_on_the_lists_are_those_of_the_classes():
    assert [estimator_class(name).__name__ for name in ESTIMATORS] == list(ESTIMATORS)
    assert all(issubclass(option_class(name), Parameters) for name in OPTIONS)


@pytest.mark.parametrize(
    "bad", [np.random.RandomState(0), object(), {"a": {1, 2}}, np.array([object()])]
)
def test_what_only_pickle_could_store_is_named(bad):
    with pytest.raises(ValueError, match=r"thing.*=.* cannot be stored.*model.set_params\(thing="):
        encode_params({"thing": bad})


def fingerprint(X, y, seed=0, **params):
    return fit_fingerprint("QSGPRegressor", {"kernel": RBF(1.0)} | params, as_rows(X, y), seed)


def test_a_fingerprint_is_plain_data_and_repeats():
    X, y = np.random.default_rng(0).normal(size=(5000, 3)), np.arange(5000.0)
    first = fingerprint(X, y)
    assert json.loads(json.dumps(first)) == fingerprint(X.copy(), y.copy())
    assert first["rows"] == 5000 and first["features"] == 3 and first["vastgp"] == "0.1"
    # the same values in another form are the same data
    assert fingerprint(X.astype(np.float32), y)["data"] != first["data"]
    assert fingerprint(X.tolist(), y.tolist())["data"] == first["data"]


def test_a_fingerprint_sees_what_matters():
    X, y = np.random.default_rng(0).normal(size=(50, 3)), np.arange(50.0)
    first = fingerprint(X, y)
    changed = X.copy()
    changed[20, 1] += 1e-9
    assert fingerprint(changed, y)["data"] != first["data"]
    assert fingerprint(X, y + 1e-9)["data"] != first["data"]
    # whichever row it is
    many = np.zeros((5000, 3))
    there = fingerprint(many, many[:, 0])
    many[3, 1] = 1e-9
    assert fingerprint(many, many[:, 0])["data"] != there["data"]
    assert fingerprint(X[:-1], y[:-1])["rows"] == 49
    assert fingerprint(X, y, seed=1)["seed"] == 1
    other = fingerprint(X, y, kernel=RBF(1.0 + 1e-12))
    assert other["params"] != first["params"] and other["data"] == first["data"]


def test_load_makes_estimators_of_this_library_only(tmp_path):
    write_archive(tmp_path / "a", {"kind": "checkpoint"}, {})
    with pytest.raises(ValueError, match="is a vastgp checkpoint, not a model"):
        vastgp.load(tmp_path / "a")
    write_archive(tmp_path / "b", {"kind": "model", "estimator": "os.system", "vastgp": "9.9"}, {})
    with pytest.raises(ValueError, match=r"class 'os.system'.*written by vastgp 9.9: install that"):
        vastgp.load(tmp_path / "b")
    with pytest.raises(FileNotFoundError, match="no such file: check the name and the folder"):
        vastgp.load(tmp_path / "c")


def test_arguments_that_moved_are_named_with_their_new_place(tmp_path, monkeypatch):
    cls = vastgp.ExactGPRegressor
    monkeypatch.setattr(cls, "_moved", {"rank": "now solver=Block(rank=...)"}, raising=False)
    header = {"kind": "model", "estimator": "ExactGPRegressor", "vastgp": "0.0.9"}
    write_archive(tmp_path / "m", header | {"params": {"rank": 3, "colour": 1}}, {})
    with pytest.raises(
        ValueError,
        match=r"arguments 'rank', 'colour', which .* 'rank': now solver=Block.* written by vastgp 0\.0\.9",
    ):
        vastgp.load(tmp_path / "m")
