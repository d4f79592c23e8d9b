"""What an accelerator is left out of; without one, by a process that believes that it has one."""

from __future__ import annotations

import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import vastgp
from vastgp import _accelerator
from vastgp.data import Rows
from vastgp.data.devices import devices_for
from vastgp.estimators.race import seconds_of_compiling
from vastgp.fitting.minibatch_runner import _Reader
from vastgp.fitting.run import Run


@pytest.fixture
def on_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let JAX say that it works on a GPU, of unknown memory."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(_accelerator, "free_bytes", lambda: None)


@contextmanager
def compiled_on_card() -> Iterator[list[str]]:
    """Give where programs are asked for that are not compiled for the host."""
    found: list[str] = []

    def note(event: str, duration_secs: float, **kwargs: str | int) -> None:
        del duration_secs, kwargs
        if event.endswith("backend_compile_duration") and _accelerator.is_present():
            found.append("".join(traceback.format_stack(limit=30)))

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


@pytest.mark.usefixtures("on_card")
def test_the_block_alone_is_the_hosts():
    assert _accelerator.is_present()
    with _accelerator.left_out():
        assert not _accelerator.is_present()
        with _accelerator.left_out():  # again, as fits call others
            assert not _accelerator.is_present()
        assert not _accelerator.is_present()
        assert [device.platform for device in _accelerator.devices()] == ["cpu"]
        assert jnp.ones(3).devices() == {jax.local_devices(backend="cpu")[0]}
        assert devices_for(1e12, 64) == 1
    assert _accelerator.is_present()


@pytest.mark.usefixtures("on_card")
@pytest.mark.parametrize("told", ["cpu", "device"])
def test_a_user_may_leave_it_out(told: str):
    device = "cpu" if told == "cpu" else jax.local_devices(backend="cpu")[0]
    with jax.default_device(device):
        assert not _accelerator.is_present()
        assert not _accelerator.left_out().__enter__()  # nothing to do


def test_nothing_changes_without_one():
    with _accelerator.left_out():
        assert jax.config.jax_default_device is None
    assert _accelerator.devices() == jax.local_devices()


@pytest.mark.usefixtures("on_card")
def test_the_thread_that_reads_ahead_works_where_the_fit_does():
    def draw(first: int, count: int) -> tuple[int, bool]:
        return first + count, _accelerator.is_present()

    with _accelerator.left_out():
        reader = _Reader(draw, 3, 4)
    reader.start()
    reader.join()
    assert reader.result() == (7, False)
    other = threading.Thread(target=lambda: seen.append(_accelerator.is_present()))
    seen: list[bool] = []
    other.start()
    other.join()
    assert seen == [True]


@pytest.mark.usefixtures("on_card")
@pytest.mark.parametrize(
    "model",
    [
        vastgp.QSGPRegressor(max_seconds=20.0), vastgp.TSVGPClassifier(max_seconds=20.0),
        vastgp.GPRegressor(max_seconds=5.0),
    ],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
def test_few_rows_compile_nothing_for_a_card(model: Any):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (300, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=300)
    jax.clear_caches()
    with compiled_on_card() as found, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a budget may end a fit
        if "Classifier" in type(model).__name__:
            model.fit(X, y > 0.0).predict_proba(X[:40])
        else:
            model.fit(X, y).predict(X[:40], return_std=True)
        assert not found
        jax.jit(lambda x: 2.0 * x)(jnp.ones(3))
    assert found  # what is compiled outside of a fit is the card's


@pytest.mark.usefixtures("on_card")
@pytest.mark.parametrize(
    ("rows", "budget", "on_host"),
    [(5000, None, True), (5001, None, False), (50_000, 15.0, True), (50_000, 60.0, False)],
)
def test_what_is_sooner_on_the_host(rows: int, budget: float | None, on_host: bool):
    model, table = (
        vastgp.QSGPRegressor(max_seconds=budget),
        Rows(np.zeros((rows, 1)), np.zeros(rows)),
    )
    assert seconds_of_compiling(model) == 3.0 * model._compiling_seconds
    assert model._is_sooner_on_host(table, Run(budget)) == on_host


def test_without_one_a_fit_asks_for_no_place():
    model = vastgp.QSGPRegressor()
    assert not model._is_sooner_on_host(Rows(np.zeros((10, 1)), np.zeros(10)), Run(None))
