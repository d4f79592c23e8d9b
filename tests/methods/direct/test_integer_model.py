"""Models in integers: the C program and its Python twin agree to the bit, and with the floating point model nearly."""

import shutil
import subprocess

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from vastgp import RBF, DirectRegressor
from vastgp.methods.direct.integer_header import write_header
from vastgp.methods.direct.integer_model import IntegerModel, sine_table
from vastgp.options import Fixed, MeanField, Support

COMPILER = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler on this machine")

MAIN = r"""
#include <stdio.h>
#include "model.h"

int main(void) {
    double raw[model_INPUTS];
    int16_t x[model_INPUTS];
    int32_t mean[model_OUTPUTS];
    int64_t variance[model_OUTPUTS];
    while (fread(raw, sizeof raw, 1, stdin) == 1) {
        model_quantise(raw, x);
        model_predict(x, mean, variance);
        for (int j = 0; j < model_INPUTS; ++j) printf("%d ", x[j]);
        for (int o = 0; o < model_OUTPUTS; ++o) printf("%ld %lld ", (long)mean[o], (long long)variance[o]);
        printf("%d\n", (int)(CLASS));
    }
    return 0;
}
"""


def run_c(folder, X, last="0"):
    """Compile ``model.h`` strictly and return what the program prints, one row for each input."""
    (folder / "main.c").write_text(MAIN.replace("CLASS", last))
    command = [
        COMPILER,
        "-std=c99",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "main.c",
        "-o",
        "main",
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    ran = subprocess.run([str(folder / "main")], input=X.tobytes(), capture_output=True, check=True)
    return np.array([[int(word) for word in line.split()] for line in ran.stdout.splitlines()])


def wave(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (n, 2)) * [1.0, 40.0] + [5.0, -100.0]
    y = 30.0 + 4.0 * np.sin(2.0 * (X[:, 0] - 5.0)) * (X[:, 1] + 100.0) / 40.0
    return X, y + 0.4 * rng.normal(size=n)


SUPPORTS = {
    "even": {},
    "learned": {"learn": True},
    "powers": {"values": [-4, -2, -1, -0.5, -0.25, 0, 0.25, 0.5, 1, 2, 4]},
    "no zero": {"values": 16},
    "uneven": {"values": [-2.5, -1.1, 0.0, 0.7, 2.2]},
}


def make(num_basis=100, kernel=None, noise_std=0.4, max_iter=1000, **support):
    return DirectRegressor(
        kernel or RBF([0.8, 60.0], 16.0),
        num_basis,
        support=Support(**({"learn": False} | support)),
        family=MeanField(max_iter=max_iter),
        hyperparameters=Fixed(noise_std=noise_std),
    )


@pytest.fixture(scope="module", params=SUPPORTS, ids=str)
def model(request):
    return make(**SUPPORTS[request.param]).fit(*wave(500))


@needs_compiler
def test_the_program_and_its_twin_agree_to_the_bit(model, tmp_path):
    X, _ = wave(300, seed=1)
    X = np.concatenate([X, [[1e9, -1e9], [5.0, -100.0], [-1e300, 0.0]]])  # clipped, and the centre
    twin = model.export(tmp_path / "model.h")
    printed = run_c(tmp_path, X)
    codes = twin.quantise(X)
    np.testing.assert_array_equal(printed[:, :2], codes)
    mean, variance = twin.predict_integers(codes)
    np.testing.assert_array_equal(printed[:, 2], mean[:, 0])
    np.testing.assert_array_equal(printed[:, 3], variance[:, 0])


@needs_compiler
def test_any_tables_agree_to_the_bit(tmp_path):
    """Random tables over their whole ranges, three functions, negative sums, angles that wrap around."""
    rng = np.random.default_rng(0)
    tables = IntegerModel(
        frequencies=rng.integers(-32767, 32768, (20, 2)).astype(np.int16),
        amplitudes=rng.integers(0, 32768, (3, 40)).astype(np.uint16),
        levels=np.array([-127, -64, -8, -1, 0, 1, 2, 4, 8, 16, 32, 64, 100, 127], np.int8),
        codes=(rng.integers(0, 14, (3, 40, 5)) | (rng.integers(0, 14, (3, 40, 5)) << 4)).astype(
            np.uint8
        ),
        multipliers=np.array([3_000_001, 2_097_153, 4_194_303]),
        shifts=np.array([22, 30, 35]),
        noise=123_456_789_012,
        input_mean=np.array([0.1, -3.0]),
        input_scale=np.array([0.5, 7.0]),
        output_mean=0.0,
        output_step=1.0,
        frequency_shift=5,
        is_classifier=True,
    )
    write_header(tables, tmp_path / "model.h")
    X = rng.normal(size=(500, 2)) * [4.0, 40.0]
    printed = run_c(tmp_path, X, "model_classify(x)")
    codes = tables.quantise(X)
    np.testing.assert_array_equal(printed[:, :2], codes)
    mean, variance = tables.predict_integers(codes)
    np.testing.assert_array_equal(printed[:, 2:8:2], mean)
    np.testing.assert_array_equal(printed[:, 3:8:2], variance)
    np.testing.assert_array_equal(printed[:, 8], np.argmax(mean, axis=1))
    tables.write_npz(tmp_path / "model.npz")
    read = IntegerModel.read(tmp_path / "model.npz")
    np.testing.assert_array_equal(read.predict_integers(codes)[1], variance)
    assert read.is_classifier is True and read.frequency_shift == 5


def test_integers_predict_what_the_model_does(model):
    X, y = wave(1000, seed=2)
    mean, std = model.to_integer(64).predict(X, return_std=True)
    right, right_std = model.predict(X, return_std=True)
    rmse = np.mean((right - y) ** 2) ** 0.5
    assert np.mean((mean - right) ** 2) ** 0.5 < 0.15 * rmse
    assert np.mean((mean - y) ** 2) ** 0.5 < 1.02 * rmse
    assert np.mean(std) == pytest.approx(np.mean(right_std), rel=0.1)


@pytest.mark.parametrize("support", [15, [-4, -2, -1, -0.5, 0, 0.5, 1, 2, 4]], ids=str)
def test_a_fit_that_runs_to_its_last_step_exports_what_it_predicts(support):
    """Few rows, correlated inputs, five weights a row: spacings of weights that nothing needs grow without end."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(60, 3))
    X = Z @ rng.normal(size=(3, 8)) + 0.3 * rng.normal(size=(60, 8))
    y = np.tanh(Z[:, 0]) + 0.5 * Z[:, 1] * Z[:, 2] + 0.1 * rng.normal(size=60)
    fitted = make(300, RBF([3.0] * 8, 1.0), 0.1, max_iter=3, learn=True, values=support)
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        fitted.fit(X, y)
    assert not fitted.converged_ and fitted.n_iter_ == 3
    values = np.abs(fitted.posterior_.values)
    # the least value that is not zero stays within six standard deviations of the prior
    assert np.where(values > 0.0, values, np.inf).min(axis=1).max() <= 6.0 + 1e-6
    # sixteen samples are not their posterior
    gap = fitted.to_integer().predict(X) - fitted.predict(X)
    assert np.mean(gap**2) ** 0.5 < 0.2 * np.mean(fitted.predict(X, return_std=True)[1])


def test_integers_that_are_another_model_are_not_written(tmp_path):
    fitted = make(20).fit(*wave(40))
    fitted.posterior_.rows = 30.0 * fitted.posterior_.rows  # farther out than sixteen bits reach
    with pytest.raises(ValueError, match="the integers are not this model: at 40 training rows"):
        fitted.export(tmp_path / "model.h")
    assert not list(tmp_path.iterdir())


def test_samples_are_levels_times_amplitudes(model):
    """Weights rebuilt from the tables are the stratified samples of the posterior."""
    integer = model.to_integer(8, random_state=3)
    weights = integer.levels[integer._unpacked(0)] * integer.amplitudes[0][:, None].astype(float)
    drawn = model.posterior_.sample_weights(8, seed=3, stratified=True).T
    ratio = np.median(weights[drawn != 0.0] / drawn[drawn != 0.0])
    # amplitudes are rounded to integers, and values of an uneven support to 127 steps
    most = 0.6 * np.abs(integer.levels.astype(int)).max()
    np.testing.assert_allclose(weights, ratio * drawn, rtol=0.02, atol=most)
    assert np.all(weights[drawn == 0.0] == 0.0)


@pytest.mark.parametrize("name", ["model.npz", "model.4bit", "model"])
def test_a_file_keeps_the_model(name, model, tmp_path):
    written = model.export(tmp_path / name, "npz", num_samples=4)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    read = IntegerModel.read(tmp_path / name)
    X, _ = wave(50, seed=4)
    np.testing.assert_array_equal(read.predict(X), written.predict(X))
    assert read.num_bytes == written.num_bytes
    # a quarter of a byte a sample, two bytes an amplitude and a frequency
    expected = 100 * 4 / 2 + 100 * 2 + 50 * 2 * 2 + 2 * 1025
    assert read.num_bytes == pytest.approx(expected, abs=20)


def test_the_table_of_sines_is_a_turn():
    table = sine_table()
    assert table[0] == table[512] == table[1024] == 0
    assert table[256] == 32767 and table[768] == -32767


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m, p: m.export(p / "m.h", "cpp"), "format must be one of"),
        (lambda m, p: m.export(p / "m.h", num_samples=3), "num_samples must be even"),
        (lambda m, p: m.export(p / "m.h", num_samples=0), "num_samples must be a positive integer"),
        (lambda m, p: m.export(p / "m.h", name="3d"), "name must be an identifier of C"),
        (lambda m, p: m.export(p / "m.h", name="aé"), "name must be an identifier of C"),
        (lambda m, p: m.to_integer().predict([[1.0]]), r"X must have shape \(n, 2\)"),
        (lambda m, p: m.to_integer().predict([[1.0, np.nan]]), "hold no NaN"),
    ],
)
def test_mistakes_are_named(ask, message, tmp_path):
    model = make(20).fit(*wave(40))
    with pytest.raises(ValueError, match=message):
        ask(model, tmp_path)


def test_letters_that_c_does_not_know_are_left_out_of_names(tmp_path):
    model = make(20).fit(*wave(40))
    model.export(tmp_path / "modèle é.h")
    assert "static inline void mod_le___predict(" in (tmp_path / "modèle é.h").read_text("ascii")


def test_more_than_four_bits_are_refused(tmp_path):
    model = make(20, values=17).fit(*wave(40))
    with pytest.raises(ValueError, match="support has 17 values, and four bits hold 16"):
        model.export(tmp_path / "model.h")


def test_another_file_is_refused(tmp_path):
    np.savez(tmp_path / "other.npz", X=np.zeros(3))
    with pytest.raises(ValueError, match="is no integer model"):
        IntegerModel.read(tmp_path / "other.npz")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_simple_answer_has_no_integers_and_is_told_how_to_have_the_methods_own(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    line = DirectRegressor(RBF(2.0), 40).fit(X, y)
    assert line.answer_ in ("linear", "average")
    with pytest.raises(
        ValueError, match=r"with a kernel and hyperparameters=Fixed\(\.\.\.\) nothing"
    ):
        line.export(tmp_path / "line.h")
    own = DirectRegressor(RBF(2.0), 40, hyperparameters=Fixed(noise_std=0.1)).fit(X, y)
    assert own.answer_ == "own" and own.export(tmp_path / "own.h").predict(X[:3]).shape == (3,)
