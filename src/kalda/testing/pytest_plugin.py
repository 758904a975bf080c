"""The pytest plug-in: the fixtures `kafka`, `kafka_cluster` and `kafka_factory`, and the mark ``kafka``.

pytest imports it in every test run where Kalda is installed, so it imports no broker and no client. Those are
imported on a thread as soon as a test that uses a fixture is collected.
"""

import contextlib
import functools
import importlib.machinery
import inspect
import logging
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

from kalda.testing.kafka_mark import KafkaMark, KafkaMarkError, read_marks

if TYPE_CHECKING:
    from types import ModuleType

    from kalda.testing.kafka import Kafka, KafkaCluster, KafkaFacilities, RunningTest
    from kalda.testing.kafka_factory import KafkaFactory
    from kalda.testing.session_brokers import SessionBrokers

_FIXTURES: Final = ("kafka", "kafka_cluster", "kafka_factory")
_SECTION: Final = "Kafka"
_SNAPSHOTS: Final = "snapshots"
_MARK: Final = (
    "kafka(brokers=1, settings=None, security=None, as_version=None, faults=None): "
    "the cluster of the fixtures kafka and kafka_cluster."
)


class _Session:
    """Makes the brokers of a test session when a test needs them."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._brokers: SessionBrokers | None = None
        self._is_over = False
        self._is_begun = False
        self.next_item: pytest.Item | None = None
        """The test that follows the one that runs."""

    @property
    def brokers(self) -> "SessionBrokers":
        """The brokers, made at the first call, which waits until their code is imported."""
        from kalda.testing.session_brokers import SessionBrokers

        with self._lock:
            if self._is_over:
                raise RuntimeError("the test session is over")
            if self._brokers is None:
                self._brokers = SessionBrokers()
            return self._brokers

    @property
    def made(self) -> "SessionBrokers | None":
        """The brokers, if a test has needed them."""
        return self._brokers

    def begin(self, item: pytest.Item) -> None:
        """Import the brokers' code and start the cluster of a test, in the background, at the first call."""
        if not self._is_begun:
            self._is_begun = True
            prepare = functools.partial(self.prepare, item)
            threading.Thread(target=prepare, name="kalda-testing-import", daemon=True).start()

    def prepare(self, item: pytest.Item) -> None:
        """Start the cluster of a test, in the background."""
        # What is wrong is an error of the test's fixture, not of the session.
        with contextlib.suppress(Exception):
            if _uses(item, "kafka"):
                self.brokers.prepare_kafka(mark_of_node(item))
            if _uses(item, "kafka_cluster"):
                self.brokers.prepare_cluster(mark_of_node(item))

    def close(self) -> None:
        """End all brokers."""
        with self._lock:
            self._is_over = True
        if self._brokers is not None:
            self._brokers.close()


class _PlainImports:
    """Imports Kalda's modules as Python does, not as pytest does those of plug-ins.

    pytest compiles all modules of a distribution with a plug-in again, with rewritten assertions: for
    hundreds of modules that takes seconds, and brokers get slower.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: "ModuleType | None" = None
    ) -> ModuleSpec | None:
        """Find a module of Kalda (see `importlib.abc.MetaPathFinder`)."""
        if not name.startswith("kalda."):
            return None
        return importlib.machinery.PathFinder.find_spec(name, path, target)


_T = TypeVar("_T")
_session_key: Final = pytest.StashKey[_Session]()
_imports_key: Final = pytest.StashKey[_PlainImports]()


# Hooks.


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--kafka-update``."""
    parser.getgroup("kalda").addoption(
        "--kafka-update",
        action="store_true",
        help="Write the golden files of `kafka.snapshot` instead of comparing with them.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line("markers", _MARK)
    config.stash[_session_key] = _Session()
    imports = config.stash[_imports_key] = _PlainImports()
    sys.meta_path.insert(0, imports)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End all brokers, however the session ends."""
    session = config.stash.get(_session_key, None)
    if session is not None:
        session.close()
    imports = config.stash.get(_imports_key, None)
    if imports in sys.meta_path:
        sys.meta_path.remove(imports)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Start to import the brokers' code when the first test that needs it is found."""
    option = item.config.option
    # Tests that -k and -m leave out are found as well; see `pytest_collection_finish`.
    if not (option.collectonly or option.keyword or option.markexpr) and _uses_kafka(item):
        item.config.stash[_session_key].begin(item)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start to import the brokers' code if a test that was chosen needs it."""
    first = next((item for item in session.items if _uses_kafka(item)), None)
    if first is not None and not session.config.option.collectonly:
        session.config.stash[_session_key].begin(first)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Start the cluster of a test that nobody has announced."""
    session = item.config.stash[_session_key]
    session.next_item = nextitem
    if _uses_kafka(item):
        session.prepare(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Start the cluster of the next test while this one, which has its own by now, runs."""
    session = item.config.stash[_session_key]
    # Not while the brokers' code is still imported, for which a test without brokers would wait.
    if session.made is not None and session.next_item is not None and _uses_kafka(session.next_item):
        session.prepare(session.next_item)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the brokers hold to the report of a failed test."""
    report = yield
    if report.failed and call.when != "teardown" and _uses_kafka(item):
        brokers = item.config.stash[_session_key].made
        if brokers is not None:
            report.sections += [(_SECTION, text) for text in brokers.reports()]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End all brokers, also after Ctrl-C and ``-x``."""
    own = session.config.stash.get(_session_key, None)
    if own is not None:
        own.close()


# Fixtures.


@pytest.fixture(scope="session")
def kafka_factory(pytestconfig: pytest.Config) -> "KafkaFactory":
    """Makes what `kafka` and `kafka_cluster` are, for fixtures of wider scopes."""
    from kalda.testing.kafka_factory import KafkaFactory

    return KafkaFactory(pytestconfig.stash[_session_key].brokers)


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> "Iterator[Kafka]":
    """A part of a cluster of real brokers, which no other test sees."""
    brokers = request.config.stash[_session_key].brokers
    brokers.logs.hide_from(_handlers_of_pytest())
    with contextlib.ExitStack() as stack:
        kafka = _started(stack, brokers.kafka_for(_mark(request), _running(request)))
        _hand_over(request, "kafka", kafka)
        yield kafka


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> "Iterator[KafkaCluster]":
    """A cluster of real brokers of this test alone: it may kill, pause or cut off some."""
    brokers = request.config.stash[_session_key].brokers
    brokers.logs.hide_from(_handlers_of_pytest())
    with contextlib.ExitStack() as stack:
        cluster = _started(stack, brokers.cluster_for(_mark(request), _running(request)))
        _hand_over(request, "kafka_cluster", cluster)
        yield cluster


# Internals.


def mark_of_node(node: pytest.Item) -> KafkaMark:
    """Return what the marks of a test ask for.

    Raises:
        KafkaMarkError: one is wrong.
    """
    return read_marks((mark.args, mark.kwargs) for mark in node.iter_markers("kafka"))


def _uses_kafka(item: pytest.Item) -> bool:
    return any(_uses(item, name) for name in _FIXTURES)


def _uses(item: pytest.Item, name: str) -> bool:
    """Return whether a test uses a fixture of this module, and not another one of the same name."""
    information = getattr(item, "_fixtureinfo", None)
    if information is None:
        return False
    for definition in reversed(information.name2fixturedefs.get(name, ())):
        if getattr(definition.func, "__module__", None) == __name__:
            return True
        if name not in definition.argnames:
            # It hides those that it does not use.
            return False
    return False


def _mark(request: pytest.FixtureRequest) -> KafkaMark:
    try:
        return mark_of_node(request.node)
    except KafkaMarkError as error:
        text = str(error)
    # Outside of `except`, and without a traceback: it would show nothing of the test.
    pytest.fail(text, pytrace=False)


def _started(stack: contextlib.ExitStack, made: "contextlib.AbstractContextManager[_T]") -> _T:
    """Start what a fixture gives; a wrong setting in the mark fails with its message alone."""
    from kalda.common.config_def import ConfigError
    from kalda.faults import FaultError

    try:
        return stack.enter_context(made)
    except ConfigError as error:
        text = f"the cluster does not start: {error}"
    except FaultError as error:
        text = f"faults= of @pytest.mark.kafka: {error}"
    pytest.fail(text, pytrace=False)


def _handlers_of_pytest() -> list[logging.Handler]:
    """Return the handlers with which pytest captures logs during a test."""
    return [each for each in logging.getLogger().handlers if type(each).__module__ == "_pytest.logging"]


def _running(request: pytest.FixtureRequest) -> "RunningTest":
    from kalda.testing.kafka import RunningTest

    path = request.path
    return RunningTest(
        request.node.name, path.parent / _SNAPSHOTS / path.stem, request.config.option.kafka_update
    )


def _hand_over(request: pytest.FixtureRequest, name: str, facilities: "KafkaFacilities") -> None:
    """Let the test close its asynchronous clients, and let methods of unittest have the fixture's value."""
    test = request.node
    instance = request.instance
    # Methods of unittest cannot take fixtures as arguments.
    if hasattr(instance, "addCleanup"):
        setattr(instance, name, facilities)
        if hasattr(instance, "addAsyncCleanup"):
            instance.addAsyncCleanup(facilities._end_async)
    elif inspect.iscoroutinefunction(getattr(test, "obj", None)):
        test.obj = _closing(test.obj, facilities)


def _closing(function: Callable[..., Any], facilities: "KafkaFacilities") -> Callable[..., Any]:
    """Return a coroutine function that closes the test's asynchronous clients while their loop runs."""

    @functools.wraps(function)
    async def test(*args: Any, **options: Any) -> Any:
        try:
            return await function(*args, **options)
        finally:
            await facilities._end_async()

    return test
