"""What every test runs under: the CPU, no display, and annotations that are enforced."""

from __future__ import annotations

import collections
import contextlib
import gc
import hashlib
import os
import signal
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import pytest

import typechecking

# Results to the last bit are part of what is tested, so the device is fixed unless the caller names another.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")

# Most of a test's time is compilation. What makes code fast that a test runs once is left out (users get it): two
# modules of QSGP's tests take 272 s in place of 455. Level 0 saves little more, and misses some tolerances.
_FLAGS = [
    "--xla_backend_optimization_level=1",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_parallel_codegen_split_count=1",
]
if tuple(map(int, metadata.version("jaxlib").split(".")[:2])) <= (0, 10):
    _FLAGS.append("--xla_cpu_use_fusion_emitters=false")  # later ones end the process on it
os.environ.setdefault("XLA_FLAGS", " ".join(_FLAGS))

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
    typechecking.install()

# A shell that starts the suite in the background has Ctrl-C ignored, and what is tested is how it is obeyed.
signal.signal(signal.SIGINT, signal.default_int_handler)

_TESTS = Path(__file__).parent


@pytest.fixture(autouse=True, scope="module")
def _compiled_programs_go_with_their_module():
    """Let go of compiled programs in memory: kept to the end, those of a thousand tests take gigabytes."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


_COMPILING = "/jax/core/compile/backend_compile_duration"


class _Costs:
    """Seconds by test file, and those of them that were compilation; sent from each process to the one that reports."""

    def __init__(self) -> None:
        self.files: collections.Counter[str] = collections.Counter()
        self.compiling, self._watched = 0.0, False

    def watch(self) -> None:
        """Count compilation, once JAX is there to tell of it."""
        if not self._watched and "jax" in sys.modules:
            sys.modules["jax"].monitoring.register_event_duration_secs_listener(self._note)
            self._watched = True

    def _note(self, event: str, seconds: float, **_: object) -> None:
        if event == _COMPILING:
            self.compiling += seconds

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.files[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["compiling"] = self.compiling

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        self.compiling += getattr(node, "workeroutput", {}).get("compiling", 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        total = sum(self.files.values())
        if total < 60.0:
            return
        terminalreporter.section("where the time went")
        for name, seconds in self.files.most_common(15):
            terminalreporter.line(f"{seconds:7.0f} s  {name}")
        terminalreporter.line(
            f"{total:7.0f} s  all files; {self.compiling / total:.0%} of it compilation"
        )


_COSTS = _Costs()


def pytest_configure(config: pytest.Config) -> None:
    """Report where the time went, and give each of several processes one thread for linear algebra.

    OpenBLAS waits by spinning: two processes of two threads on two cores took ten times as long to factorise a matrix
    of 1000 rows. The processes are started later, with this environment.
    """
    config.pluginmanager.register(_COSTS, "costs")
    if getattr(config.option, "numprocesses", None):
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ.setdefault(name, "1")


def pytest_collection_finish() -> None:
    """Look at what is imported no more when garbage is collected, and less often than after 700 new objects.

    Tracing makes hundreds of thousands of objects, and JAX is called at each collection: an eighth of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


# In each of several processes, what stands while a test runs: what is there already ended its process before. xdist
# gives such a test to a new process, eight times.
_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID")
_BEGUN = Path(tempfile.gettempdir()) / f"begun-{_RUN}" if _RUN else None


def _begun(item: pytest.Item) -> Path | None:
    return _BEGUN / hashlib.sha256(item.nodeid.encode()).hexdigest()[:16] if _BEGUN else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test that ended its process when it ran before."""
    if begun := _begun(item):
        begun.parent.mkdir(exist_ok=True)
        if begun.exists():
            pytest.fail(
                "ended its process, by a crash or a hang, when it ran before", pytrace=False
            )
        begun.touch()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Note that the process outlived the test."""
    if begun := _begun(item):
        begun.unlink(missing_ok=True)


def pytest_sessionfinish() -> None:
    """Leave no folder where no test ended its process."""
    if _BEGUN:
        with contextlib.suppress(OSError):
            _BEGUN.rmdir()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None):
    """Compile without optimisation what a test marked ``little_work`` and its fixtures need."""
    del nextitem
    _COSTS.watch()
    typechecking.begin_test()
    if item.get_closest_marker("little_work") is None:
        return (yield)
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    try:
        return (yield)
    finally:
        jax.config.update("jax_disable_most_optimizations", False)


# Files of a minute and more, few tests in each: begun last, they would leave all other processes without work.
_FIRST = [
    "system/test_processes.py",
    "system/test_documents.py",
    "methods/reweighted/test_classifier.py",
    "auto/test_front_door.py",
    "auto/test_heaps.py",
    "estimators/test_sklearn_checks.py",
    "auto/test_front_door_checks.py",
    "test_extending.py",
]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, and mark the tests of ``statistical/`` and ``system/`` by where they lie."""
    rank = {_TESTS / name: number for number, name in enumerate(_FIRST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))
    for item in items:
        folder = item.path.relative_to(_TESTS).parts[0]
        if folder in {"statistical", "system"}:
            item.add_marker(folder)
