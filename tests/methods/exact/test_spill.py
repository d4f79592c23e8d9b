"""The factor on a disk: the same numbers, gone on from, and clear words where disk or folder fail."""

import errno
import shutil

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from estimators.regressor_conformance import small_data
from vastgp import RBF, ExactGPRegressor, load
from vastgp.linalg import panel_folder
from vastgp.linalg.panel_folder import SpilledCholesky
from vastgp.linalg.panels import bytes_of_factor, factorize_panels
from vastgp.methods.exact import many_rows
from vastgp.options import Fixed, Spill
from vastgp.solvers import exact_factor, large_factor, spilled_factor


@pytest.fixture(autouse=True)
def _small_panels(monkeypatch):
    monkeypatch.setattr(many_rows, "SPILLED_ROWS", 16)
    monkeypatch.setattr(many_rows, "PANEL_ROWS", 16)


def model_for(folder=None, **params):
    spill = {} if folder is None else {"max_rows": Spill(folder)}
    given = {"hyperparameters": Fixed(3.0), "dtype": "float32"} | spill | params
    return ExactGPRegressor(RBF([4.0, 300.0], 900.0), **given)


def panels_of(folder):
    return sorted(folder.glob("factor-*/panel-*.npy"))


def test_predictions_are_those_of_the_factor_in_memory_to_the_last_bit(tmp_path):
    X, y = small_data(n=70)
    held, spilled = model_for().fit(X, y), model_for(tmp_path / "there").fit(X, y)
    assert len(panels_of(tmp_path / "there")) == 5
    (place,) = (tmp_path / "there").glob("factor-*")
    assert spilled.diagnosis_["folder"] == str(place) and held.diagnosis_["folder"] is None
    assert spilled.log_evidence_ == held.log_evidence_
    new = X[:20] + 0.1
    for kind in ({"return_std": True}, {}):
        np.testing.assert_array_equal(spilled.predict(new, **kind), held.predict(new, **kind))
    np.testing.assert_array_equal(spilled.leave_one_out(), held.leave_one_out())
    np.testing.assert_array_equal(
        spilled.sample_y(new, 3, random_state=1), held.sample_y(new, 3, random_state=1)
    )


def test_a_scaled_factor_is_that_of_the_scaled_matrix(tmp_path):
    A = np.cov(np.random.default_rng(0).normal(size=(20, 60)))

    def write(rows, out):
        out[...] = A[: rows.stop, rows]

    right = np.random.default_rng(1).normal(size=(20, 2))
    for factor in (None, SpilledCholesky.of(tmp_path / "factor", 20, "float64", 1.0, 8)):
        found = factorize_panels(write, 20, "float64", panel_rows=8, factor=factor)
        found.scale(3.0)
        lower = 3.0 * np.linalg.cholesky(A)
        np.testing.assert_allclose(lower @ found.half_solve(right), right, atol=1e-12)
        np.testing.assert_allclose(9.0 * A @ found.solve(right), right, atol=1e-12)
        np.testing.assert_allclose(found.half_product(right), lower @ right, atol=1e-12)
        assert found.log_determinant == pytest.approx(np.linalg.slogdet(9.0 * A)[1], rel=1e-12)
        np.testing.assert_allclose(
            found.inverse_diagonal(), np.diag(np.linalg.inv(A)) / 9.0, rtol=1e-10
        )


def test_a_fit_that_was_ended_goes_on_and_is_the_same_to_the_last_bit(tmp_path, monkeypatch):
    X, y = small_data(n=70)
    written = []
    append = panel_folder.PanelFolder.append

    def ends(self, panel):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(len(panel))
        append(self, panel)

    monkeypatch.setattr(panel_folder.PanelFolder, "append", ends)
    with pytest.raises(KeyboardInterrupt):
        model_for(tmp_path).fit(X, y)
    assert len(panels_of(tmp_path)) == 3
    monkeypatch.setattr(
        panel_folder.PanelFolder,
        "append",
        lambda self, panel: (written.append(len(panel)), append(self, panel)),
    )
    again = model_for(tmp_path).fit(X, y)
    assert written == [16, 32, 48, 64, 70]  # each once
    once = model_for().fit(X, y)
    np.testing.assert_array_equal(
        again.predict(X, return_std=True), once.predict(X, return_std=True)
    )


@pytest.mark.parametrize("harm", ["cut", "gone", "numbers"])
def test_a_panel_that_is_not_whole_is_made_again(tmp_path, harm):
    X, y = small_data(n=70)
    once = model_for(tmp_path).fit(X, y).predict(X, return_std=True)
    damaged = panels_of(tmp_path)[2]
    if harm == "cut":
        damaged.write_bytes(damaged.read_bytes()[:-100])
    elif harm == "gone":
        damaged.unlink()
    else:
        (damaged.parent / "factor.json").write_text('{"panels": [[16, 0.0')
    np.testing.assert_array_equal(model_for(tmp_path).fit(X, y).predict(X, return_std=True), once)


def test_other_hyperparameters_or_rows_have_a_factor_of_their_own(tmp_path):
    X, y = small_data(n=40)
    first = model_for(tmp_path).fit(X, y)
    expected = first.predict(X, return_std=True)
    model_for(tmp_path, hyperparameters=Fixed(2.0)).fit(X, y)
    model_for(tmp_path).fit(X[:39], y[:39])
    model_for(tmp_path).fit(X, y[::-1].copy())  # targets are no part of it
    assert len(list(tmp_path.glob("factor-*"))) == 3
    np.testing.assert_array_equal(first.predict(X, return_std=True), expected)


def test_a_loaded_model_reads_the_factor_and_writes_nothing(tmp_path, monkeypatch):
    X, y = small_data(n=70)
    model = model_for(tmp_path / "there", hyperparameters="learn", max_iter=3)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    model.save(tmp_path / "model.vastgp")
    expected = model.predict(X, return_std=True)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "there").rglob("*")}
    again = load(tmp_path / "model.vastgp")
    with monkeypatch.context() as patched:
        patched.setattr(large_factor, "factorize_panels", None)  # it is not made again
        np.testing.assert_array_equal(again.predict(X, return_std=True), expected)
    assert before == {file: file.stat().st_mtime_ns for file in (tmp_path / "there").rglob("*")}
    # without the folder it is made in memory where it fits
    shutil.rmtree(tmp_path / "there")
    mean, std = load(tmp_path / "model.vastgp").predict(X, return_std=True)
    np.testing.assert_array_equal(mean, expected[0])
    np.testing.assert_allclose(std, expected[1], rtol=1e-3)
    assert not (tmp_path / "there").exists()
    monkeypatch.setattr(large_factor, "affordable_rows", lambda itemsize: 60)
    with pytest.raises(
        ValueError, match=r"factor of 70 rows, which lay in .*there.*holds one of 60"
    ):
        load(tmp_path / "model.vastgp").predict(X, return_std=True)
    np.testing.assert_array_equal(load(tmp_path / "model.vastgp").predict(X), expected[0])


def test_a_panel_that_goes_while_a_model_predicts_is_named(tmp_path):
    X, y = small_data(n=40)
    model = model_for(tmp_path).fit(X, y)
    panels_of(tmp_path)[1].unlink()
    with pytest.raises(OSError, match=r"panel of the factor cannot be read.*panel-00001.npy"):
        model.predict(X, return_std=True)
    model.predict(X)  # needs none


def test_a_full_disk_keeps_the_panels_so_far(tmp_path, monkeypatch):
    X, y = small_data(n=70)
    save = np.save

    def full(file, array, **kwargs):
        if len(panels_of(tmp_path)) == 2:
            raise OSError(errno.ENOSPC, "no space")
        save(file, array, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(panel_folder.np, "save", full)
        with pytest.raises(OSError, match=r"The 2 panels so far stay: make room") as found:
            model_for(tmp_path).fit(X, y)
    assert found.value.errno == errno.ENOSPC and len(panels_of(tmp_path)) == 2
    assert not list(tmp_path.rglob(".*.tmp"))
    assert model_for(tmp_path).fit(X, y).conditioned_rows_.size == 70


def test_room_is_asked_for_before_any_work(tmp_path, monkeypatch):
    X, y = small_data(n=70)
    free = bytes_of_factor(60, 4)
    monkeypatch.setattr(
        spilled_factor.shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(0, 0, free)
    )
    monkeypatch.setattr(ExactGPRegressor, "_condition", None)
    with pytest.raises(
        ValueError, match=r"X has 70 rows, whose factor takes .* GB in .* room for 5\d rows"
    ):
        model_for(tmp_path).fit(X, y)


def test_a_factor_that_will_not_do_leaves_no_panels(tmp_path, monkeypatch):
    X, y = small_data(n=40)
    seen = []

    def judged(matrix, y, factor, seed, clock):
        seen.append(len(panels_of(tmp_path)))
        raise exact_factor.FactorizationError("no good")

    monkeypatch.setattr(exact_factor, "_judged", judged)
    with pytest.raises(exact_factor.FactorizationError, match="float32: no good"):
        model_for(tmp_path).fit(X, y)
    assert seen == [3] and not panels_of(tmp_path)


def test_what_is_no_folder_or_has_no_use_is_refused(tmp_path):
    X, y = small_data(n=30)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Spill\\(folder\\) is not a folder"):
        model_for(tmp_path / "file").fit(X, y)
    with pytest.raises(OSError, match="for Spill\\(folder\\) does not exist"):
        model_for(tmp_path / "none" / "folder").fit(X, y)
    with pytest.raises(ValueError, match="must be a path, received ''"):
        Spill("")
    with pytest.raises(ValueError, match="another factor is made at every turn"):
        ExactGPRegressor(likelihood="heteroskedastic", max_rows=Spill(tmp_path)).fit(X, y)
    model_for(tmp_path).fit(X, y)
    (place,) = tmp_path.glob("factor-*")
    refused = pytest.raises(ValueError, match="spill: another fit is at work")
    with spilled_factor.alone_with(place, "spill"), refused:
        model_for(tmp_path).fit(X, y)
