"""The commands for several targets, and for counts with exposures."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import vastgp

# one method each: a race of every target would take the whole budget
SEVERAL = ("--target", "rent", "-t", "staff", "--set", "method=exact", "--max-seconds", 4)
COUNTS = ("--target", "claims", "--exposure", "years", "--max-seconds", 6)


def shops(seed, n=60):
    """Rent and staff of shops; some rows lack one, and are small enough to be fitted at once."""
    rng = np.random.default_rng(seed)
    size, city = rng.uniform(20.0, 100.0, n), rng.choice(["Oslo", "Rome"], n)
    rent = 3.0 * size + 50.0 * (city == "Rome") + rng.normal(size=n)
    staff = 0.1 * size + 0.1 * rng.normal(size=n)
    return pa.table(
        {"size": size, "city": city, "rent": rent, "staff": pa.array(staff, mask=np.arange(n) == 3)}
    )


def claims(seed, n=120):
    """Claims of drivers: a rate by age, times the years that each was insured."""
    rng = np.random.default_rng(seed)
    age, years = rng.uniform(20.0, 80.0, n), 10.0 ** rng.uniform(-1.0, 1.0, n)
    count = rng.poisson(years * np.exp(0.3 + np.cos((age - 20.0) / 12.0)))
    return pa.table({"age": age, "years": years, "claims": count})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    for name, make in (("shops", shops), ("claims", claims)):
        pa.parquet.write_table(make(0), folder / f"{name}.parquet")
        pa.csv.write_csv(make(1), folder / f"{name}_new.csv")
    return folder


@pytest.fixture(scope="module")
def several(run, folder):
    out = folder / "shops.vastgp"
    text = run(
        "fit", folder / "shops.parquet", *SEVERAL, "--test-fraction", 0.3, "--out", out
    ).out  # fmt: skip
    return text, out


@pytest.fixture(scope="module")
def counts(run, folder):
    out = folder / "claims.vastgp"
    text = run(
        "fit", folder / "claims.parquet", *COUNTS, "--test-fraction", 0.2, "--out", out
    ).out  # fmt: skip
    return text, out


# ---------------------------------------------------------------- several targets


def test_a_fit_tells_of_each_target(several):
    text, path = several
    assert "The target 'rent' is predicted as a number" in text and "The target 'staff'" in text
    for name in ("rent", "staff"):
        assert f"{name}, saved in" in text and f"kept out of the fit: {name}" in text
    assert list(vastgp.load(path).outputs_) == ["rent", "staff"]


@pytest.mark.parametrize("batch_rows", [1000, 7])
def test_predictions_have_a_block_of_columns_for_each_target(
    run, folder, several, tmp_path, batch_rows
):
    new, out = folder / "shops_new.csv", tmp_path / "p.parquet"
    run("predict", several[1], new, "--out", out, "--range", "--batch-rows", batch_rows)
    found, model = pa.parquet.read_table(out), vastgp.load(several[1])
    kinds = ("mean", "std", "lower_95", "upper_95", "outside")
    assert found.column_names == [f"{name}_{kind}" for name in model.outputs_ for kind in kinds]
    mean, std = model.predict(new, return_std=True)
    low, high = np.moveaxis(model.predict_interval(new), 2, 0)
    for k, name in enumerate(model.outputs_):
        for kind, expected in (("mean", mean), ("std", std), ("lower_95", low), ("upper_95", high)):
            np.testing.assert_allclose(found[f"{name}_{kind}"], expected[:, k], rtol=1e-9)
        np.testing.assert_array_equal(found[f"{name}_outside"], model.outputs_[name].outside(new))


def test_each_target_is_scored_and_described(run, folder, several, tmp_path):
    new, path = folder / "shops_new.csv", several[1]
    report = json.loads(run("evaluate", path, new, "--json").out)["targets"]
    model = vastgp.load(path)
    assert report["staff"]["rows_without_target"] == 1 and report["rent"]["rows"] == 60
    table = pa.csv.read_csv(new).to_pandas()
    assert report["rent"]["r2"] == pytest.approx(model.outputs_["rent"].score(table, "rent"))
    plain = run("evaluate", path, new, "--plot", tmp_path / "c.svg").out
    assert ": rent" in plain and ": staff" in plain
    assert {page.name for page in tmp_path.iterdir()} == {"c-rent.svg", "c-staff.svg"}
    swapped = json.loads(run("evaluate", path, new, "-t", "staff", "-t", "rent", "--json").out)
    assert swapped["targets"]["rent"]["r2"] < 0.0
    known = json.loads(run("info", path, "--json").out)["targets"]
    assert known["staff"]["target"] == "staff" and known["rent"]["rows_dropped"] == 0
    assert ": rent" in run("info", path).out
    text = run("report", path, "--out", tmp_path / "page.html").out
    assert "page-rent.html" in text and "</html>" in (tmp_path / "page-staff.html").read_text()
    run("report", path, new, "--out", tmp_path / "page.html", code=2)
    run("report", path, new, "--out", tmp_path / "page.html", "--force")


def test_targets_that_do_not_go_together_are_named(run, folder, several, tmp_path):
    data = folder / "shops.parquet"
    for arguments, words in (
        (("-t", "rent", "-t", "city"), "The target 'city' holds text, for example"),
        (("-t", "rent", "-t", "rent"), "--target names 'rent' several times"),
        (("-t", "rent", "-t", "staf"), "no column 'staf', named by --target. Did you mean 'staff'?"),
        (("-t", "rent", "-t", "staff", "--classes"), "--classes: several targets are numbers"),
        (("-t", "rent", "-t", "staff", "--features", "staff"), "names the target 'staff' as well"),
        (("-t", "rent", "-t", "staff", "--method", "exact"), "several times --target is for --method"),
    ):  # fmt: skip
        text = run("fit", data, *arguments, "--out", tmp_path / "m.vastgp", code=2).err
        assert words in " ".join(text.split())
    text = run("evaluate", several[1], folder / "shops_new.csv", "-t", "rent", code=2).err
    assert "--target was given 1 time, and the model has 2 targets (rent, staff)" in " ".join(
        text.split()
    )


# ---------------------------------------------------------------- exposures


def test_a_fit_tells_of_the_exposures(counts):
    text, path = counts
    text = " ".join(text.split())
    assert "The target 'claims' is predicted as a number, a count over 'years'" in text
    assert "On the rows kept out of the fit" in text and "exposure years, 0." in text
    model = vastgp.load(path)
    assert model.exposure_name_ == "years" and model.feature_names_in_.tolist() == ["age"]


def test_predictions_are_of_a_unit_or_of_the_exposures_asked_for(run, folder, counts, tmp_path):
    new, model = folder / "claims_new.csv", vastgp.load(counts[1])
    years = pa.csv.read_csv(new)["years"].to_numpy()
    of_one = model.predict(new)
    for number, (asked, scale, words) in enumerate(
        (
            ((), 1.0, "one unit of exposure (--exposure years predicts each row's own)"),
            (("--exposure", "years"), years, "an exposure of years each"),
            (("--exposure", 2.5), 2.5, "an exposure of 2.5 each"),
        )
    ):
        out = tmp_path / f"{number}.parquet"
        text = run("predict", counts[1], new, "--out", out, "--batch-rows", 50, *asked).out
        assert words in " ".join(text.split())
        np.testing.assert_allclose(pa.parquet.read_table(out)["mean"], scale * of_one, rtol=1e-9)


def test_counts_are_scored_by_their_exposures(run, folder, counts, tmp_path):
    new, path = folder / "claims_new.csv", counts[1]
    model = vastgp.load(path)
    report = json.loads(run("evaluate", path, new, "--json").out)
    table = pa.csv.read_csv(new).to_pandas()
    assert report["r2"] == pytest.approx(model.score(table, "claims"))
    assert report["target"]["nlpd"] == pytest.approx(
        -model.log_predictive_density(table, "claims").mean()
    )
    wrong = json.loads(run("evaluate", path, new, "--exposure", "1", "--json").out)
    assert wrong["target"]["nlpd"] > report["target"]["nlpd"] + 0.2
    found = json.loads(run("info", path, "--json").out)["exposure"]
    assert found["name"] == "years" and found["counted"] == model.exposure_.counted
    page = tmp_path / "page.html"
    run("report", path, new, "--out", page)
    assert "Counts have exposures" in page.read_text()
    table.drop(columns="years").to_csv(tmp_path / "bare.csv", index=False)
    for command in ("evaluate", "report"):
        text = run(command, path, tmp_path / "bare.csv", code=2).err
        assert "--exposure is missing: the model was fitted to counts with exposures 'years'" in (
            " ".join(text.split())
        )


def test_exposures_that_are_none_are_named(run, folder, counts, several, tmp_path):
    data = folder / "claims.parquet"
    table = claims(0).to_pandas()
    table.assign(years=0.0).to_csv(tmp_path / "zero.csv", index=False)
    table.assign(claims=0.5).to_csv(tmp_path / "shares.csv", index=False)
    out = ("--out", tmp_path / "m.vastgp")
    for source, arguments, words in (
        (data, ("--exposure", "year"), "no column 'year', named by --exposure. Did you mean 'years'?"),
        (data, ("--exposure", "claims"), "--exposure 'claims' is a target as well"),
        (data, ("--exposure", "years", "--method", "tsvgp"), "--exposure is for --method auto"),
        (data, ("--exposure", "years", "--features", "age,years"), "names the exposure 'years'"),
        (data, ("--exposure", "years", "--classes"), "--classes: counts with --exposure years"),
        (tmp_path / "zero.csv", ("--exposure", "years"), "Error: --exposure years must hold finite numbers"),
        (tmp_path / "shares.csv", ("--exposure", "years"), "'claims' has exposures, and holds 120"),
    ):  # fmt: skip
        text = run("fit", source, "-t", "claims", *arguments, *out, code=2).err
        assert words in " ".join(text.split())
    text = run(
        "predict", counts[1], data, "--exposure", "yaers", "--out", tmp_path / "p.csv", code=2
    )
    assert "no column 'yaers'" in " ".join(text.err.split())
    new = folder / "shops_new.csv"
    text = run(
        "predict", several[1], new, "--exposure", "size", "--out", tmp_path / "p.csv", code=2
    )
    assert "was fitted without exposures" in " ".join(text.err.split())


def test_a_target_of_spoilt_numbers_is_told_by_its_row(run, tmp_path):
    lines = [f"{k},{k / 3:.2f}" for k in range(40)]
    lines[17] = "17,unknown"
    path = tmp_path / "spoilt.csv"
    path.write_text("\n".join(["a,y", *lines, ""]))
    for more in ((), ("--numbers",)):
        text = run("fit", path, "-t", "y", *more, "--out", tmp_path / "m.vastgp", code=2).err
        words = "The target 'y' holds numbers, but one row has text, the first 'unknown' in row 17"
        assert words in " ".join(text.split())
    european = tmp_path / "european.csv"
    european.write_text("a;y\n" + "".join(f"{k};{k},5\n" for k in range(15)))
    made = tmp_path / "e.vastgp"
    run("fit", european, "-t", "y", "--set", "method=exact", "--max-seconds", 3, "--out", made)
    assert vastgp.load(made).target_range_ == (0.5, 14.5)
