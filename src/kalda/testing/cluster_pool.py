"""Keeps clusters ready for the tests of a session, so that a test does not wait for brokers to start.

One thread starts clusters ahead of the tests that need them, and removes those that tests are done with. A
test that asks for a cluster nobody announced waits until the thread has made it.
"""

import contextlib
import logging
import shutil
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Final

from kalda.testing.guarded_directory import GuardedDirectory
from kalda.testing.kafka import KafkaCluster
from kalda.testing.kafka_mark import ClusterSpec
from kalda.testing.security import Security

logger: Final = logging.getLogger(__name__)

READY_MAX: Final = 2
"""How many unused clusters are kept at most: one for the next test, one for a test with another mark."""

SHARED_MAX: Final = 4
"""How many shared clusters that no test uses are kept; the one that was used longest ago goes first."""

TAKE_SECONDS_MAX: Final = 120.0
"""How long a test waits for a cluster on a very busy machine."""

_CLOSE_SECONDS_MAX: Final = 60.0

_SETTINGS: Final = {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"}
"""A cluster's first group and first transaction wait for the partitions of an internal topic. Kafka's 50 of
each take longer to make than a test takes."""


class PoolClosedError(RuntimeError):
    """The pool was closed while a test waited for a cluster."""


class _Shared:
    """A cluster that many tests use."""

    def __init__(self, future: "Future[KafkaCluster]") -> None:
        self.future: Final = future
        self.users = 0
        self.is_discarded = False


class ClusterPool:
    """The clusters of one session of tests; its methods may be called from any thread."""

    def __init__(self) -> None:
        self._directory: Final = GuardedDirectory("kalda-pytest-")
        self._condition: Final = threading.Condition()  # with a reentrant lock
        self._jobs: Final[deque[Callable[[], None]]] = deque()
        self._ready: Final[OrderedDict[ClusterSpec, Future[KafkaCluster]]] = OrderedDict()
        self._shared: Final[OrderedDict[ClusterSpec, _Shared]] = OrderedDict()
        self._leased: Final[dict[KafkaCluster, _Shared]] = {}
        self._live: Final[set[KafkaCluster]] = set()
        self._waiting: Final[set[Future[KafkaCluster]]] = set()
        """Those whose start has not begun."""
        self._made = 0
        self._is_closed = False
        self._thread: Final = threading.Thread(target=self._run, name="kalda-testing-pool", daemon=True)
        self._thread.start()

    # For the session.

    def prepare_shared(self, spec: ClusterSpec) -> None:
        """Start a cluster for `lease` in the background, unless it is there."""
        with self._condition:
            if not self._is_closed:
                self._shared_of(spec)

    def prepare_fresh(self, spec: ClusterSpec) -> None:
        """Start a cluster for `take` in the background, unless one is ready."""
        with self._condition:
            if self._is_closed or spec in self._ready:
                return
            self._ready[spec] = self._start(spec, is_urgent=False)
            if len(self._ready) > READY_MAX:
                _, unused = self._ready.popitem(last=False)
                self._jobs.append(lambda: self._end_unused(unused))
                self._condition.notify()

    def lease(self, spec: ClusterSpec) -> KafkaCluster:
        """Return the shared cluster of a spec, waiting until it serves; `release` must follow.

        Raises:
            ClusterError, ConfigError, ValueError: the cluster does not start.
            PoolClosedError: the pool is closed.
            TimeoutError: it does not start in time.
        """
        with self._condition:
            self._check_open()
            shared = self._shared_of(spec)
            shared.users += 1
        try:
            cluster = self._wait(shared.future)
        except BaseException:
            with self._condition:
                shared.users -= 1
            # The next test tries again.
            self.discard(spec)
            raise
        with self._condition:
            self._leased[cluster] = shared
        return cluster

    def release(self, cluster: KafkaCluster) -> None:
        """End a test's use of a shared cluster, which stays for others unless it was discarded."""
        with self._condition:
            shared = self._leased[cluster]
            shared.users -= 1
            if shared.users:
                return
            del self._leased[cluster]
        if shared.is_discarded:
            self.give_back(cluster)

    def discard(self, spec: ClusterSpec) -> None:
        """Give nobody the present shared cluster of a spec any more; it ends when no test uses it."""
        with self._condition:
            shared = self._shared.pop(spec, None)
            if shared is None:
                return
            shared.is_discarded = True
            if not shared.users:
                self._jobs.append(lambda: self._end_unused(shared.future))
                self._condition.notify()

    def take(self, spec: ClusterSpec) -> KafkaCluster:
        """Return a cluster for one test, waiting until it serves; `give_back` must follow.

        Raises:
            ClusterError, ConfigError, ValueError: the cluster does not start.
            PoolClosedError: the pool is closed.
            TimeoutError: it does not start in time.
        """
        with self._condition:
            self._check_open()
            future = self._ready.pop(spec, None) or self._start(spec, is_urgent=True)
        try:
            return self._wait(future)
        except BaseException:
            with self._condition:
                self._jobs.append(lambda: self._end_unused(future))
                self._condition.notify()
            raise

    def give_back(self, cluster: KafkaCluster) -> None:
        """End and remove a cluster in the background."""
        with self._condition:
            self._jobs.append(lambda: self._end(cluster))
            self._condition.notify()

    def close(self) -> None:
        """End and remove all clusters. A second call does nothing."""
        with self._condition:
            if self._is_closed:
                return
            self._is_closed = True
            self._condition.notify()
        self._thread.join(_CLOSE_SECONDS_MAX)
        if self._thread.is_alive():
            logger.error("a cluster for tests did not end within %g s", _CLOSE_SECONDS_MAX)
        self._directory.close()

    # Internals; those that start clusters are called with the lock.

    def _check_open(self) -> None:
        if self._is_closed:
            raise PoolClosedError("the session of tests ends")

    def _shared_of(self, spec: ClusterSpec) -> _Shared:
        shared = self._shared.get(spec)
        if shared is not None and not _has_failed(shared.future):
            self._shared.move_to_end(spec)
            return shared
        unused = [each for each, known in self._shared.items() if not known.users]
        if len(unused) >= SHARED_MAX:
            self.discard(unused[0])
        shared = self._shared[spec] = _Shared(self._start(spec, is_urgent=True))
        return shared

    def _start(self, spec: ClusterSpec, *, is_urgent: bool) -> "Future[KafkaCluster]":
        future: Future[KafkaCluster] = Future()
        self._waiting.add(future)
        # A test waits for an urgent one: it comes before clusters that are to end.
        (self._jobs.appendleft if is_urgent else self._jobs.append)(lambda: self._make(spec, future))
        self._condition.notify()
        return future

    def _wait(self, future: "Future[KafkaCluster]") -> KafkaCluster:
        try:
            return future.result(TAKE_SECONDS_MAX)
        except CancelledError:
            raise PoolClosedError("the session of tests ends") from None
        except TimeoutError:
            raise TimeoutError(f"no cluster started within {TAKE_SECONDS_MAX:g} s") from None

    # On the thread.

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._jobs and not self._is_closed:
                    self._condition.wait()
                if self._is_closed:
                    break
                job = self._jobs.popleft()
            job()
        for future in self._waiting:
            future.cancel()
        for cluster in list(self._live):
            self._end(cluster)

    def _make(self, spec: ClusterSpec, future: "Future[KafkaCluster]") -> None:
        with self._condition:
            self._waiting.discard(future)
        if not future.set_running_or_notify_cancel():
            return
        self._made += 1
        security = spec.security
        if security is None and spec.protocol is not None:
            security = Security(protocol=spec.protocol)
        try:
            cluster = KafkaCluster(
                brokers=spec.brokers,
                settings={**_SETTINGS, **spec.broker_settings},
                security=security,
                directory=self._directory.path / f"cluster-{self._made}",
            )
            cluster.__enter__()
        except BaseException as error:
            future.set_exception(error)
            return
        self._live.add(cluster)
        future.set_result(cluster)

    def _end_unused(self, future: "Future[KafkaCluster]") -> None:
        if not future.cancel():
            # It was made on this thread, before this call.
            with contextlib.suppress(Exception):
                self._end(future.result(0))

    def _end(self, cluster: KafkaCluster) -> None:
        self._live.discard(cluster)
        try:
            cluster.__exit__(None, None, None)
        except Exception as error:
            # `KafkaCluster.check` has reported to the test what belongs to it.
            logger.warning("a cluster for tests did not end well: %s", error)
        finally:
            shutil.rmtree(cluster.directory, ignore_errors=True)


def _has_failed(future: "Future[KafkaCluster]") -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)
