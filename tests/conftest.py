"""What every test runs under: the CPU, no display, and annotations that are enforced."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

# Results to the last bit are part of what is tested, so the device is fixed unless the caller names another.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")

# Most of a test's time is compilation. What makes code fast that a test runs once is left out (users get it): two
# modules of QSGP's tests take 272 s in place of 455. Level 0 saves little more, and misses some tolerances.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)

# Compiled programs are kept on disk, for the modules, processes and runs that need them again: compilation is most of
# the suite's time, and a program from there is the same to the last bit.
_COMPILED = Path(__file__).parent.parent / ".pytest_cache" / "compiled"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_COMPILED))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")

# Shapes and types in the signatures of vastgp hold for every call the tests make (see typechecking.py). The hook acts
# on modules as they are imported, hence before any test module can import them. VASTGP_TYPECHECK=0 turns it off, to
# time the suite or to see an error of our own where the annotation would have spoken first.
if os.environ.get("VASTGP_TYPECHECK", "1") != "0":
    early = sorted(name for name in sys.modules if name.startswith("vastgp."))
    if early:
        raise RuntimeError(f"imported before annotations could be checked: {', '.join(early)}")
    install_import_hook("vastgp", "typechecking.checked")

# A shell that starts the suite in the background has Ctrl-C ignored, and what is tested is how it is obeyed.
signal.signal(signal.SIGINT, signal.default_int_handler)

_TESTS = Path(__file__).parent


@pytest.fixture(autouse=True, scope="module")
def _compiled_programs_go_with_their_module():
    """Let go of compiled programs in memory: kept to the end, those of a thousand tests take gigabytes."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


def pytest_configure(config: pytest.Config) -> None:
    """Give each of several processes one thread for linear algebra.

    OpenBLAS waits by spinning: two processes of two threads on two cores took ten times as long to factorise a matrix
    of 1000 rows. The processes are started later, with this environment.
    """
    if getattr(config.option, "numprocesses", None):
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ.setdefault(name, "1")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None):
    """Compile without optimisation what a test marked ``little_work`` and its fixtures need."""
    del nextitem
    if item.get_closest_marker("little_work") is None:
        return (yield)
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    try:
        return (yield)
    finally:
        jax.config.update("jax_disable_most_optimizations", False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of ``statistical/`` and ``system/`` by where they lie."""
    for item in items:
        folder = item.path.relative_to(_TESTS).parts[0]
        if folder in {"statistical", "system"}:
            item.add_marker(folder)
