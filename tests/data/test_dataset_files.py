"""GRIB files, opened by the library that xarray opens them with."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from vastgp.data.dataset_files import open_dataset


def test_without_cfgrib_a_grib_file_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "field.grib2").write_bytes(b"GRIB")
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "cfgrib" else found(name)
    )
    with pytest.raises(ImportError, match=r"field\.grib2' is a GRIB file.*pip install cfgrib"):
        open_dataset(tmp_path / "field.grib2")


def test_a_file_that_only_is_called_grib_is_refused_by_name(tmp_path):
    pytest.importorskip("cfgrib")
    (tmp_path / "field.grib").write_bytes(b"no message")
    with pytest.raises(ValueError, match=r"field\.grib' is no GRIB file that cfgrib can read"):
        open_dataset(tmp_path / "field.grib")


def test_gaps_and_coordinates_of_a_grib_file_are_those_that_were_written(tmp_path):
    pytest.importorskip("cfgrib")
    import eccodes

    path = tmp_path / "field.grib"
    lat, lon = np.arange(60.0, 44.0, -3.0), np.arange(0.0, 15.0, 3.0)
    values = 280.0 + np.arange(30.0).reshape(6, 5)
    values[2, 3] = 9999.0
    message = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib1")
    keys = {
        "Ni": 5, "Nj": 6, "latitudeOfFirstGridPointInDegrees": lat[0],
        "latitudeOfLastGridPointInDegrees": lat[-1], "longitudeOfFirstGridPointInDegrees": lon[0],
        "longitudeOfLastGridPointInDegrees": lon[-1], "iDirectionIncrementInDegrees": 3.0,
        "jDirectionIncrementInDegrees": 3.0, "dataDate": 20240101, "paramId": 167,
        "bitmapPresent": 1, "missingValue": 9999.0,
    }  # fmt: skip
    for key, value in keys.items():
        eccodes.codes_set(message, key, value)
    eccodes.codes_set_values(message, values.ravel())
    with path.open("wb") as file:
        eccodes.codes_write(message, file)
    with open_dataset(path, chunks={}) as found:
        field = found["t2m"].load()
    np.testing.assert_allclose(field["latitude"], lat)
    np.testing.assert_allclose(field["longitude"], lon)
    expected = np.where(values == 9999.0, np.nan, values)
    np.testing.assert_allclose(field, expected, atol=1e-3)
    assert list(tmp_path.iterdir()) == [path]
