"""Gives tests that share a cluster names of their own: `Namespace`, and `Namespaces`, all of one cluster.

What differs between brokers in this process and brokers that are processes is in `cluster_namespaces` and
`process_namespaces`.
"""

import itertools
import logging
import queue
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Final, Protocol, Self

from kalda.cluster.schema import ListenerEndpoint
from kalda.common.overriding import override
from kalda.common.public import public_in
from kalda.faults import Fault, FaultError, FaultPlan
from kalda.testing.cluster_threads import ClusterError
from kalda.testing.process import KaldaProcessError
from kalda.testing.security import ClientConfigs, SecuredCluster

logger: Final = logging.getLogger(__name__)

_REMOVALS_MAX: Final = 64
"""Closed namespaces that wait until what they had is removed. The next `close` waits for a place."""

_REMOVED_TOGETHER_MAX: Final = 16
"""Namespaces that are removed in one go, which takes hardly longer than one."""

_END_SECONDS: Final = 5.0


@public_in("kalda.testing")
class Namespace(ClientConfigs):
    """Topics, groups, transactional ids and users of a shared cluster that nobody else sees.

    `Cluster.namespace` makes one; it is open until `close`, or to the end of a ``with`` block. Its clients
    connect to `bootstrap`: ports of its own on the brokers of the cluster, over which every name looks plain.
    Two namespaces may use the same names at the same time. `cluster` in the namespace is shared: settings of
    brokers, features, quotas of addresses, log directories. The internal topics do not appear in it.

    Over the cluster's own ports the names have a prefix, ``ns-<name>-``; a topic's name has that much less
    than 249 characters.
    """

    def __init__(self, name: str, bootstrap: Callable[[], str], close: Callable[[], None]) -> None:
        """`bootstrap` returns the addresses now: they become more when a broker that was down starts."""
        super().__init__()
        self._name: Final = name
        self._bootstrap: Final = bootstrap
        self._close: Final = close

    @property
    def name(self) -> str:
        """The name, which is in the prefix of stored names."""
        return self._name

    @property
    @override
    def bootstrap(self) -> str:
        return self._bootstrap()

    def close(self) -> None:
        """End the connections of the clients, and have all that the namespace has removed in the background.

        Returns at once, unless very many closed namespaces wait for that. Closing twice is harmless.
        """
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Namespace {self._name} at {self.bootstrap}>"


class NamespaceBrokers(Protocol):
    """The brokers of a cluster as they open, close and remove namespaces.

    Each method raises `ClusterError` or `KaldaProcessError` if a broker does not do it.
    """

    def serving(self) -> Collection[int]:
        """Return the ids of the brokers that run and are not paused."""

    def open(
        self,
        broker_ids: Collection[int],
        name: str,
        ports: Mapping[int, int],
        plan: FaultPlan | None,
        announced: Callable[[int, ListenerEndpoint], ListenerEndpoint] | None,
    ) -> dict[int, ListenerEndpoint]:
        """Open a namespace on brokers and return its endpoints by id; a port is free unless given.

        With `announced` each broker returns its own address to clients at once, as that function changes it.
        """

    def announce(self, name: str, endpoints: Mapping[int, ListenerEndpoint]) -> None:
        """Have all brokers return these addresses to clients of the namespace."""

    def close(self, broker_ids: Collection[int], names: Collection[str]) -> None:
        """Close the listeners of namespaces on brokers."""

    def open_names(self, broker_id: int) -> Collection[str]:
        """Return the namespaces that are open on a broker."""

    def remove(self, names: Collection[str]) -> None:
        """Remove what closed namespaces had."""

    def forget(self, name: str) -> None:
        """Drop what is kept for a closed namespace."""


class Namespaces:
    """The namespaces of one cluster; safe to use from any thread."""

    def __init__(self, brokers: NamespaceBrokers) -> None:
        self._brokers: Final = brokers
        self._lock: Final = threading.Lock()
        """Held while listeners are opened or closed, so that all brokers announce the same addresses."""
        self._numbers: Final = itertools.count(1)
        self._open: Final[dict[str, dict[int, ListenerEndpoint]]] = {}
        """By name, the endpoint of each broker, those that are down included."""
        self._plans: Final[dict[str, FaultPlan]] = {}
        """By name, the faults of requests of those namespaces that have some."""
        self.advertise: Callable[[int, ListenerEndpoint], ListenerEndpoint] = lambda _, endpoint: endpoint
        """Returns the address that clients get for a broker's endpoint; a test may put a proxy between."""
        self._removals: Final[queue.Queue[str | None]] = queue.Queue(_REMOVALS_MAX)
        self._remover: threading.Thread | None = None
        self._is_ended = False

    def open(self, name: str | None, secured: SecuredCluster | None, plan: FaultPlan | None) -> Namespace:
        """Open a namespace on all brokers that serve; without a name it gets a number.

        Raises:
            FaultError: the plan has faults of brokers or links, which all namespaces share.
            ValueError: the name is wrong or in use.
            ClusterError: a broker could not open a port, or no broker serves.
        """
        others: tuple[Fault, ...] = () if plan is None else (*plan.broker_faults, *plan.link_faults)
        if others:
            raise FaultError(
                f"{FaultPlan(others)}: a namespace has faults of requests only; those of brokers and links "
                "are the cluster's (`Cluster.apply_faults`)"
            )
        with self._lock:
            # A cluster may be entered again.
            self._is_ended = False
            if name is None:
                name = next(str(each) for each in self._numbers if str(each) not in self._open)
            if name in self._open:
                raise ValueError(f"namespace {name!r} is open already")
            serving = self._brokers.serving()
            if not serving:
                raise ClusterError("no broker serves, so no namespace can be opened")
            self._open[name] = {}
            if plan is not None and plan.request_faults:
                self._plans[name] = plan
            try:
                self._open_on(serving, name)
            except BaseException:
                self._close_on(serving, name)
                self._forget(name)
                raise
            endpoints = self._open[name]

            def bootstrap() -> str:
                return ",".join(f"127.0.0.1:{each.port}" for _, each in sorted(endpoints.items()))

            namespace = Namespace(name, bootstrap, partial(self.close, name))
            namespace.secured = secured
            return namespace

    def close(self, name: str) -> None:
        """Close a namespace and have what it has removed; see `Namespace.close`."""
        with self._lock:
            if name not in self._open or self._is_ended:
                return
            self._close_on(self._brokers.serving(), name)
            self._forget(name)
            if self._remover is None:
                self._remover = threading.Thread(
                    target=self._remove_closed, name="kalda-namespaces", daemon=True
                )
                self._remover.start()
        self._removals.put(name)

    def restore(self, broker_id: int) -> None:
        """Open the namespaces on a broker that serves again, on the ports that it had, and close others.

        Raises:
            ClusterError: a port could not be opened.
        """
        with self._lock:
            if broker_id not in self._brokers.serving():
                return
            known = set(self._brokers.open_names(broker_id))
            for name in known - self._open.keys():
                self._close_on([broker_id], name)
            for name in self._open:
                if name not in known:
                    self._open_on([broker_id], name)
                else:
                    self._announce(name)

    def wait_removed(self) -> None:
        """Return when everything that closed namespaces had was removed."""
        self._removals.join()

    def end(self) -> None:
        """Remove nothing more: the cluster ends, and with it all that it has."""
        with self._lock:
            self._is_ended = True
            self._open.clear()
            self._plans.clear()
            remover, self._remover = self._remover, None
        if remover is None:
            return
        with suppress(queue.Empty):
            while True:
                self._removals.get_nowait()
                self._removals.task_done()
        self._removals.put(None)
        remover.join(_END_SECONDS)

    # Listeners.

    def _open_on(self, broker_ids: Collection[int], name: str) -> None:
        known = self._open[name]
        # One broker alone has all there is to announce.
        is_alone = not known and len(broker_ids) == 1
        ports = {broker_id: each.port for broker_id, each in known.items()}
        announced = self.advertise if is_alone else None
        known.update(self._brokers.open(broker_ids, name, ports, self._plans.get(name), announced))
        if not is_alone:
            self._announce(name)

    def _announce(self, name: str) -> None:
        endpoints = {
            broker_id: self.advertise(broker_id, each) for broker_id, each in self._open[name].items()
        }
        self._brokers.announce(name, endpoints)

    def _close_on(self, broker_ids: Collection[int], name: str) -> None:
        try:
            self._brokers.close(broker_ids, [name])
        except (ClusterError, KaldaProcessError) as error:
            # A broker that goes down meanwhile has closed its listeners.
            logger.info("closing namespace %s: %s", name, error)

    def _forget(self, name: str) -> None:
        del self._open[name]
        self._plans.pop(name, None)
        self._brokers.forget(name)

    # Removal.

    def _remove_closed(self) -> None:
        """Remove what closed namespaces had, one batch after the other, until `end`."""
        while True:
            names = [self._removals.get()]
            with suppress(queue.Empty):
                while len(names) < _REMOVED_TOGETHER_MAX:
                    names.append(self._removals.get_nowait())
            closed = [name for name in names if name is not None]
            try:
                if closed and not self._is_ended:
                    self._brokers.remove(closed)
            except Exception:
                if not self._is_ended:
                    logger.exception("what the namespaces %s had stays in the cluster", ", ".join(closed))
            finally:
                for _ in names:
                    self._removals.task_done()
            if None in names:
                return
