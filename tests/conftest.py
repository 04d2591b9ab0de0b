"""What tests of several files begin with."""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import structlog

from vedette.engine import kernel

if TYPE_CHECKING:
    from tests.broker import Broker
    from tests.delivery.kit import Box
    from tests.life import Life
    from vedette.engine.match import Engine

for name in [name for name in os.environ if name.startswith("PYTHON")]:
    del os.environ[name]  # commands and agents that tests start behave as in anybody's shell: buffered, say
SPLIT = {"tests/engine/test_property.py", "tests/engine/test_native.py"}
"""Files whose tests share nothing and take long."""

hypothesis.settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("repeatable")
"""A run says the same of the same code on any machine; ``pytest --hypothesis-profile default`` draws others."""


END = "VEDETTE_TESTS_END"
"""Of the environment: tests that begin after this time (in seconds of 1970) are skipped."""


ALONE = "VEDETTE_TESTS_ALONE"
"""Of the environment: this process is that of one test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in a random order")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes longest begins first: tests that are ``long``, and the one process that has the JVM."""
    items.sort(key=lambda item: (item.get_closest_marker("long") is None, item.get_closest_marker("spark") is None))
    for item in items:
        if item.get_closest_marker("long") and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(1800))
    if (seed := config.getoption("shuffle")) is not None:
        random.Random(seed).shuffle(items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if END in os.environ and time.time() > float(os.environ[END]):
        pytest.skip("no time left")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of a file run in one process, since they share what they start; all of Spark in one, which has the JVM."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file, _, test = nodeid.partition("::")
            if file in SPLIT:
                return f"{file}::{test.partition('[')[0]}"
            return "tests/spark_jobs" if file.startswith("tests/spark_jobs/") else file

    return Scheduling(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """Whoever sees tests fail must know when the kernel was built from other sources than these."""
    if exitstatus and kernel.LOADED:
        root = Path(__file__).parent.parent
        if subprocess.run(["sh", "tools/kernel.sh", "current"], cwd=root, check=False).returncode:
            terminalreporter.write_line(
                "native kernel: built from other sources than these: make environment", red=True
            )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in an event loop of its own, one that is ``alone`` in a process of its own."""
    if pyfuncitem.get_closest_marker("alone") and ALONE not in os.environ:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", pyfuncitem.nodeid]
        environment = {**os.environ, ALONE: "yes"}
        result = subprocess.run(
            command, cwd=pyfuncitem.config.rootpath, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if result.returncode:
            pytest.fail(result.stdout.decode(errors="replace"), pytrace=False)
        return True
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@contextmanager
def hunts_awake() -> Iterator[None]:
    """Hunts give way to all else, so beside other tests on a busy machine they may get no time for minutes: here they
    are scheduled as everything."""
    over = threading.Event()

    def wake() -> None:
        while not over.wait(0.5):
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    if b"vedette.runtime.offline.hunt" in (process / "cmdline").read_bytes().split(b"\0"):
                        os.sched_setscheduler(int(process.name), os.SCHED_OTHER, os.sched_param(0))

    thread = threading.Thread(target=wake)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture(scope="module")
def awake() -> Iterator[None]:
    """``hunts_awake`` for a file of tests."""
    with hunts_awake():
        yield


@pytest.fixture(autouse=True, scope="session")
def user_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What commands keep for the user, tests keep for themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("user-cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def logs_captured() -> Iterator[None]:
    """Commands that run within this process set up logging again and again. A logger that is cached would keep to what
    was set up first, out of the reach of ``capture_logs``."""
    with pytest.MonkeyPatch.context() as patch:
        configure = structlog.configure
        patch.setattr(structlog, "configure", lambda **how: configure(**{**how, "cache_logger_on_first_use": False}))
        yield


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Life]]:
    """Starts a life in the test's folder; the one before is over then."""
    from tests.life import Life

    lives: list[Life] = []

    def start(judge: Engine, **settings: Any) -> Life:
        for life in lives:
            life.end()
        lives[:] = [Life(tmp_path, judge, **settings)]
        return lives[0]

    yield start
    for life in lives:
        life.end()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A mosquitto that runs."""
    from tests.broker import running

    with running(tmp_path / "broker") as started:
        yield started


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """An outbox."""
    from tests.delivery.kit import Box

    opened = Box(tmp_path / "store")
    yield opened
    opened.close()
