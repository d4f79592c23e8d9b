"""fit, predict, evaluate and info from files to files, against the library used directly."""

from __future__ import annotations

import json
import os
import shlex

import matplotlib.image
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from scipy import stats
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

import vastgp
from vastgp.cli import _auto, _model, _summary
from vastgp.cli._console import table
from vastgp.cli._errors import BadInput
from vastgp.cli._estimators import make_estimator
from vastgp.cli._selection import pair_of
from vastgp.estimators.registry import ESTIMATORS, METHODS
from vastgp.kernels import RBF, Constant, Linear, Matern52, Periodic
from vastgp.kernels.grid import GridKernel
from wave_table import FEATURES, as_table, fit_exact

COLUMNS = ["mean", "std", "lower_95", "upper_95"]


def read(path):
    """Predictions of any format as (n, 4)."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return np.column_stack([arrays[name] for name in COLUMNS])
    table = pa.csv.read_csv(path) if path.suffix == ".csv" else pa.parquet.read_table(path)
    assert table.column_names == COLUMNS
    return np.column_stack([table[name].to_numpy() for name in COLUMNS])


@pytest.fixture(scope="module")
def expected(model, wave):
    """Predictions by the library, without the program."""
    return vastgp.load(model).predict(as_table(wave[0][240:]), return_std=True)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npz"])
def test_predictions_are_those_of_the_library_in_every_format(
    run, files, model, expected, tmp_path, suffix
):
    out = tmp_path / f"predictions{suffix}"
    run("predict", model, files / "new.parquet", "--out", out)
    mean, std, low, high = read(out).T
    np.testing.assert_allclose(mean, expected[0], rtol=1e-12)
    np.testing.assert_allclose(std, expected[1], rtol=1e-12)
    np.testing.assert_allclose([low, high], stats.norm.interval(0.95, mean, std), rtol=1e-9)
    assert os.listdir(tmp_path) == [out.name]  # nothing temporary stays


@pytest.mark.parametrize("name", ["test.parquet", "test.csv", "test.npz"])
def test_predictions_do_not_depend_on_the_format_of_the_rows(
    run, files, model, expected, tmp_path, name
):
    run("predict", model, files / name, "--out", tmp_path / "out.npz")
    np.testing.assert_allclose(read(tmp_path / "out.npz")[:, 0], expected[0], rtol=1e-9)


def test_columns_are_found_by_name_and_others_are_ignored(run, wave, model, expected, tmp_path):
    table = as_table(wave[0][240:], station=pa.array([f"s{i}" for i in range(120)]))
    table = table.select(["salinity", "station", "depth", "pressure"])
    pa.parquet.write_table(table, tmp_path / "shuffled.parquet")
    run("predict", model, tmp_path / "shuffled.parquet", "--out", tmp_path / "out.parquet")
    np.testing.assert_allclose(read(tmp_path / "out.parquet")[:, 0], expected[0], rtol=1e-12)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npz"])
def test_batches_of_rows_join_to_the_same_predictions(
    run, files, model, expected, tmp_path, suffix
):
    out = tmp_path / f"out{suffix}"
    run("predict", model, files / "new.parquet", "--out", out, "--batch-rows", 50)
    np.testing.assert_allclose(read(out)[:, :2].T, expected, rtol=1e-9)


def test_evaluate_agrees_with_independent_scores(run, files, model, wave, expected):
    report = json.loads(run("evaluate", model, files / "test.parquet", "--json").out)
    y, (mean, std) = wave[1][240:], expected
    scale = wave[1][:240].std()
    own, standardised = report["target"], report["standardised"]
    assert own["rmse"] == pytest.approx(root_mean_squared_error(y, mean), rel=1e-9)
    assert own["mae"] == pytest.approx(mean_absolute_error(y, mean), rel=1e-9)
    assert own["nlpd"] == pytest.approx(-stats.norm.logpdf(y, mean, std).mean(), rel=1e-9)
    assert standardised["rmse"] == pytest.approx(own["rmse"] / scale, rel=1e-9)
    assert standardised["nlpd"] == pytest.approx(own["nlpd"] - np.log(scale), rel=1e-9)
    low, high = stats.norm.interval(0.95, mean, std)
    assert report["coverage"] == np.mean((low <= y) & (y <= high))
    assert report["r2"] == pytest.approx(r2_score(y, mean), rel=1e-9)
    assert report["rows"] == 120
    assert report["target_name"] == "temperature"
    # The noise has standard deviation 0.8: the model must have found the function.
    assert own["rmse"] < 1.1


def test_evaluate_prints_the_scores_it_reports(run, files, model):
    report = json.loads(run("evaluate", model, files / "test.parquet", "--json").out)
    text = run("evaluate", model, files / "test.parquet").out
    for units in ("standardised", "target"):
        for score in report[units].values():
            assert f"{score:.4g}" in text
    assert f"{100 * report['coverage']:.1f} %" in text
    assert "in units of temperature" in text


def test_evaluate_reads_csv_npz_and_another_target_column(run, files, model, wave, tmp_path):
    reference = json.loads(run("evaluate", model, files / "test.parquet", "--json").out)
    pa.parquet.write_table(
        as_table(wave[0][240:], measured=wave[1][240:]), tmp_path / "other.parquet"
    )
    for arguments in (
        (files / "test.csv",),
        (files / "test.npz",),
        (tmp_path / "other.parquet", "--target", "measured"),
    ):
        report = json.loads(run("evaluate", model, *arguments, "--json").out)
        assert report["target"] == pytest.approx(reference["target"], rel=1e-9)


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_evaluate_writes_a_calibration_plot(run, files, model, tmp_path, suffix):
    plot = tmp_path / f"calibration{suffix}"
    assert str(plot) in run("evaluate", model, files / "test.parquet", "--plot", plot).out
    if suffix == ".png":
        assert np.ptp(matplotlib.image.imread(plot)) > 0.5
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix]
    assert plot.read_bytes().startswith(start)
    assert os.listdir(tmp_path) == [plot.name]


def test_info_tells_what_was_learned(run, model, wave):
    found = json.loads(run("info", model, "--json").out)
    fitted = vastgp.load(model)
    (part,) = found["components"]
    scales = dict(zip(found["features"], part["lengthscales"], strict=True))
    assert tuple(found["features"]) == FEATURES
    np.testing.assert_allclose(part["lengthscales"], fitted.kernel_.lengthscales)
    np.testing.assert_allclose(
        part["lengthscales_standardised"], part["lengthscales"] / wave[0][:240].std(0), rtol=1e-9
    )
    # In units of the inputs: sin(depth / 150) turns within some hundred metres; salinity says nothing.
    assert 75.0 < scales["depth"] < 450.0
    assert part["lengthscales_standardised"][2] > 3.0 * part["lengthscales_standardised"][0]
    assert found["noise_std"] == pytest.approx(0.8, rel=0.15)
    assert found["target"] == "temperature"
    assert found["training_rows"] == 240
    assert found["method"] == "ExactGPRegressor"
    assert found["converged"] is True
    assert found["vastgp"] == vastgp.__version__


def test_info_shows_what_each_kind_of_kernel_says(capsys):
    """Of GRIEF's grids, of trends and levels, of none: for every input what belongs to it."""
    scale = np.array([2.0, 10.0, 0.5])
    grid = GridKernel([RBF(3.0), Matern52([4.0, 5.0])], [["a"], ["b", "c"]], 7.0)
    (found,) = _summary.components(grid, scale)
    assert found["name"] == "RBF, Matern52" and found["variance"] == 7.0
    assert found["lengthscales"] == [3.0, 4.0, 5.0]
    assert found["lengthscales_standardised"] == [1.5, 0.4, 10.0]
    trend = RBF([1.0, 2.0, 3.0]) + Linear([4.0, 9.0, 16.0]) + Constant(25.0) * Periodic(2.0)
    waves, slopes, level, season = _summary.components(trend, scale)
    assert slopes["slope_std"] == [2.0, 3.0, 4.0]
    assert slopes["slope_std_standardised"] == [4.0, 30.0, 2.0]
    assert level == {"name": "Constant", "variance": 25.0} and "lengthscales" not in season
    # the prior variance of a trend is that at rows one deviation from the mean
    assert _summary._variance(trend, scale) == pytest.approx(1 + 16 + 900 + 4 + 25)
    assert _summary.components(None, scale) == []
    shown = {"features": ["b", "a", "c"], "components": [waves, slopes]}
    _summary.show_lengthscales(shown)
    text = capsys.readouterr().out
    assert "RBF lengthscale" in text and "Linear slope" in text
    _summary.show_lengthscales(shown | {"components": []})
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_no_number_of_a_table_is_broken_and_every_name_begins_a_line(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    numbers = ["-0.09447", "1.234e+05", "95.0 %"]
    names = ["* exact on trees", "  exact, heteroskedastic on trees", "  町" + "z" * 50]
    table(["model", "NLPD", "RMSE", "in 95 %"], [[name, *numbers] for name in names])
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if all(number in line for number in numbers)]
    assert [line[2:6] for line in rows] == [name[:4] for name in names]
    # what goes on below is further right than where names begin
    others = [line for line in lines[lines.index(rows[0]) :] if line.strip() and line not in rows]
    assert all(line.startswith(" " * 6) for line in others)
    assert "".join("".join(lines).split()).count("z") == 50
    assert width < 100 or not others


def test_what_to_do_next_can_be_pasted_whatever_the_name(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(_model, "of_targets", lambda _: {})
    path = tmp_path / "it's a model.vastgp"
    _auto.report_auto(_auto.Fitted(None, {}), path)
    said = capsys.readouterr().out.partition("Next: ")[2]
    assert shlex.split(said)[:4] == ["vastgp", "predict", str(path), "NEW"]


def test_info_prints_features_from_short_to_long_lengthscale(run, model):
    text = run("info", model).out
    assert text.index("depth") < text.index("pressure") < text.index("salinity")
    for phrase in ("ExactGPRegressor", "240 rows, 3 features", "temperature", "converged"):
        assert phrase in text


@pytest.mark.parametrize("name", ["train.csv", "train.npz", "parts"])
def test_fit_reads_every_format(run, files, model, tmp_path, name):
    """The same rows in another format give the same predictions."""
    target = () if name.endswith("npz") else ("--target", "temperature")
    fit_exact(run, files / name, tmp_path / "other.vastgp", *target)
    first, second = vastgp.load(model), vastgp.load(tmp_path / "other.vastgp")
    X = np.load(files / "test.npz")["X"]
    if not name.endswith("npz"):
        X = as_table(X)
    reference = first.predict(as_table(np.load(files / "test.npz")["X"]))
    np.testing.assert_allclose(second.predict(X), reference, rtol=1e-6)


def test_fit_takes_and_leaves_out_columns(run, files, tmp_path):
    for arguments in (("--features", "pressure,depth"), ("--exclude", "salinity")):
        out = tmp_path / f"{arguments[0]}.vastgp"
        fit_exact(run, files / "train.csv", out, "--target", "temperature", *arguments)
        names = vastgp.load(out).feature_names_in_
        assert sorted(names) == ["depth", "pressure"]
    assert list(vastgp.load(tmp_path / "--features.vastgp").feature_names_in_) == [
        "pressure",
        "depth",
    ]


def test_columns_with_commas_in_their_names_stand_in_quotes(run, files, tmp_path):
    table = pd.read_csv(files / "train.csv")
    named = {"depth": "depth, m", "pressure": 'the "p", bar', "salinity": '5" x'}
    data, given = tmp_path / "odd.csv", ("--target", "temperature")
    table.rename(columns=named).to_csv(data, index=False)
    chosen, left_out = '"depth, m", 5" x', '"the ""p"", bar"'
    for number, arguments in enumerate((("--features", chosen), ("--exclude", left_out))):
        out = tmp_path / f"{number}.vastgp"
        fit_exact(run, data, out, *given, *arguments)
        assert sorted(vastgp.load(out).feature_names_in_) == ['5" x', "depth, m"]
    refused = ("fit", data, *given, "--method", "exact", "--out", tmp_path / "x.vastgp")
    said = run(*refused, "--features", "depth, m", code=2).err
    assert 'where a name with a comma stands in double quotes: "depth, m".' in said
    said = run(*refused, "--exclude", '"depth, m', code=2).err
    assert "--exclude '\"depth, m': a double quote that begins a name has none that ends it" in said
    # what is advised is what an option takes, in the quotes of a shell
    text = table.assign(temperature=1.0, note="text").rename(columns={"note": 'a "note", long'})
    text.to_csv(data, index=False)
    assert '--exclude \'"a ""note"", long"\'.' in run(*refused, code=2).err
    assert pair_of("--space", '"lat, deg",lon') == ("lat, deg", "lon")


def test_fit_holds_out_a_seeded_share_of_the_rows(run, files, tmp_path):
    texts = [
        fit_exact(
            run, files / "train.csv", tmp_path / f"{i}.vastgp", "--target", "temperature",
            "--test-fraction", 0.25, "--seed", seed,
        ).out
        for i, seed in enumerate((5, 5, 6))
    ]  # fmt: skip
    scores = [text[text.index("On the rows kept out") :] for text in texts]
    assert all("180 rows" in text for text in texts)
    assert "60 rows" in scores[0]
    assert scores[0] == scores[1] != scores[2]


def test_fit_passes_any_other_argument_on(run, files, tmp_path):
    out = tmp_path / "m.vastgp"
    given = ("max_iter=7", "hyperparameters.noise_floor=1e-3", "random_state=3")
    given = [part for entry in given for part in ("--set", entry)]
    fit_exact(run, files / "train.npz", out, *given, "--dtype", "float64")
    params = vastgp.load(out).get_params()
    assert params["max_iter"] == 7 and params["random_state"] == 3
    assert params["hyperparameters__noise_floor"] == 1e-3
    # a model that is given, not learned
    given = ("kernel.lengthscales=[150,3,1]", "kernel.variance=60", "hyperparameters.noise_std=0.8")
    given = [part for entry in given for part in ("--set", entry)]
    fit_exact(run, files / "train.npz", out, "--hyperparameters", "fixed", *given, "--force")
    kernel = RBF([150.0, 3.0, 1.0], 60.0)
    fixed = vastgp.ExactGPRegressor(kernel, hyperparameters=vastgp.options.Fixed(0.8))
    X = np.load(files / "test.npz")["X"]
    expected = fixed.fit(files / "train.npz").predict(X)
    np.testing.assert_allclose(vastgp.load(out).predict(X), expected, rtol=1e-9)


def test_what_a_name_stands_for_is_set_by_a_dot():
    settings = [
        "likelihood.class_weight=balanced",
        "basis.frequencies=qmc",
        "hyperparameters.rows=9",
    ]
    model = make_estimator("QSGPClassifier", {}, settings)
    assert model.likelihood.class_weight == "balanced" and model.likelihood.link == "logit"
    assert model.basis == vastgp.options.Fourier("qmc")
    assert model.hyperparameters == vastgp.options.Subset(rows=9)
    with pytest.raises(BadInput, match="--set solver=block or stochastic"):
        make_estimator("QSGPRegressor", {}, ["solver.rank=5"])


def test_every_estimator_of_rows_is_a_method():
    assert set(METHODS.values()) == set(ESTIMATORS) - {"GridGP"}
    for method in ("exact", "qsgp", "qsgp-classifier", "random-feature", "direct-network"):
        assert (
            METHODS[method].lower().startswith(method.replace("-", "").removesuffix("classifier"))
        )


def test_qsgp_runs_from_file_to_scores(run, files, qsgp_model, tmp_path):
    report = json.loads(run("evaluate", qsgp_model, files / "test.parquet", "--json").out)
    assert report["target"]["rmse"] < 1.1  # noise 0.8
    assert 0.85 < report["coverage"] <= 1.0
    found = json.loads(run("info", qsgp_model, "--json").out)
    assert found["method"] == "QSGPRegressor"
    assert found["parameters"]["num_basis"] == "256"
    run("predict", qsgp_model, files / "new.parquet", "--out", tmp_path / "out.parquet")
    mean, std = vastgp.load(qsgp_model).predict(files / "new.parquet", return_std=True)
    np.testing.assert_allclose(read(tmp_path / "out.parquet")[:, :2].T, [mean, std], rtol=1e-6)


def test_qsgp_with_the_same_seed_gives_the_same_model(run, files, qsgp_model, tmp_path):
    arguments = (
        "fit",
        files / "train.parquet",
        "--target",
        "temperature",
        "--method",
        "qsgp",
        "--kernel",
        "rbf",
        "--num-basis",
        256,
    )
    for seed in (3, 4):
        run(*arguments, "--seed", seed, "--out", tmp_path / f"{seed}.vastgp")
    first, same, other = (
        vastgp.load(path).predict(files / "new.parquet")
        for path in (qsgp_model, tmp_path / "3.vastgp", tmp_path / "4.vastgp")
    )
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)
