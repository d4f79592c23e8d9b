"""The package as a whole: quick to import, lazy, and without side effects on JAX."""

import subprocess
import sys
import textwrap

import pytest

import vastgp


def run_python(source: str) -> str:
    """Run a program in an interpreter of its own, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_takes_less_than_two_seconds_and_loads_nothing_heavy():
    out = run_python(
        """
        import sys, time
        start = time.perf_counter()
        import vastgp
        seconds = time.perf_counter() - start
        heavy = {"jax", "sklearn", "scipy", "matplotlib", "pandas", "polars", "pyarrow", "rich", "typer", "optax"}
        print(seconds, sorted(heavy & set(sys.modules)))
        """
    )
    seconds, loaded = out.split(maxsplit=1)
    assert float(seconds) < 2.0
    assert loaded.strip() == "[]"


def test_exact_fit_compiles_nothing_and_loads_what_it_uses():
    out = run_python(
        """
        import sys
        import sklearn.base  # loads scipy.stats, and pandas where there is one
        before = set(sys.modules)
        import jax
        made = []
        jax.monitoring.register_event_duration_secs_listener(
            lambda event, seconds, **_: made.append(event) if "jaxpr_to_mlir" in event else None
        )
        import numpy as np
        import vastgp
        X = np.random.default_rng(0).uniform(size=(60, 2))
        vastgp.ExactGPRegressor(random_state=0).fit(X, np.sin(3.0 * X[:, 0])).predict(X[:3])
        unused = {"optax", "matplotlib", "pyarrow", "polars", "xarray", "rich", "typer", "safetensors", "blackjax"}
        unused |= {"sklearn.metrics", "sklearn.cluster", "sklearn.neighbors", "sklearn.model_selection"}
        unused |= {"vastgp.auto", "vastgp.bases", "vastgp.plots"}
        print(len(made), sorted((unused - before) & set(sys.modules)))
        """
    )
    assert out.strip() == "0 []"


def test_using_it_changes_no_global_setting_of_jax():
    out = run_python(
        """
        import jax
        names = ("jax_enable_x64", "jax_default_matmul_precision", "jax_default_prng_impl", "jax_debug_nans",
                 "jax_platforms", "jax_numpy_dtype_promotion", "jax_threefry_partitionable")
        before = {name: getattr(jax.config, name) for name in names}
        import vastgp
        for name in vastgp.__all__:
            getattr(vastgp, name)
        after = {name: getattr(jax.config, name) for name in names}
        assert before == after, (before, after)
        import jax.numpy as jnp
        print(jnp.ones(1).dtype)
        """
    )
    assert out.strip() == "float32"


@pytest.mark.parametrize("name", vastgp.__all__)
def test_every_public_name_can_be_had(name):
    assert getattr(vastgp, name) is not None
    assert name in dir(vastgp)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'vastgp' has no attribute 'QSGPRegresor'"):
        vastgp.QSGPRegresor  # noqa: B018
