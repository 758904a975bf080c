"""Opens, closes and removes namespaces on brokers of this process: `ThreadBrokers`."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final, TypeVar

from kalda.broker.server import BrokerServer
from kalda.cluster.schema import ListenerEndpoint
from kalda.faults import FaultPlan
from kalda.testing.cluster_faults import SharedFaultState
from kalda.testing.cluster_threads import BrokerThread, ClusterError

T = TypeVar("T")

_CALL_SECONDS: Final = 10.0
"""How long a broker's loop may take to open or close a listener."""

_REMOVAL_SECONDS: Final = 60.0


class ThreadBrokers:
    """The brokers of an in-process cluster; implements `NamespaceBrokers`."""

    def __init__(
        self, running: Callable[[], Mapping[int, BrokerThread]], controller_id: Callable[[], int]
    ) -> None:
        """`running` returns the brokers that run and are not paused, by id."""
        self._running: Final = running
        self._controller_id: Final = controller_id
        self._faults: Final[dict[str, SharedFaultState]] = {}
        """By name, the faults of those namespaces that have some."""

    def serving(self) -> Collection[int]:
        """Return the ids of the brokers that run and are not paused."""
        return self._running().keys()

    def open(
        self,
        broker_ids: Collection[int],
        name: str,
        ports: Mapping[int, int],
        plan: FaultPlan | None,
        announced: Callable[[int, ListenerEndpoint], ListenerEndpoint] | None,
    ) -> dict[int, ListenerEndpoint]:
        """Open a namespace; see `NamespaceBrokers.open`."""
        faults = None
        if plan is not None:
            faults = self._faults.setdefault(name, SharedFaultState(plan))

        async def open_one(server: BrokerServer) -> ListenerEndpoint:
            broker_id = server.services.broker_id
            outer = [] if faults is None else [server.fault_filter(faults)]
            endpoint = await server.namespaces.open(name, ports.get(broker_id, 0), outer=outer)
            if announced is not None:
                server.namespaces.announce(name, {broker_id: announced(broker_id, endpoint)})
            return endpoint

        return _on_each(self._of(broker_ids), open_one, _CALL_SECONDS)

    def announce(self, name: str, endpoints: Mapping[int, ListenerEndpoint]) -> None:
        """Have all brokers return these addresses to clients of the namespace."""

        async def announce(server: BrokerServer) -> None:
            if name in server.namespaces.names:
                server.namespaces.announce(name, endpoints)

        _on_each(self._running(), announce, _CALL_SECONDS)

    def close(self, broker_ids: Collection[int], names: Collection[str]) -> None:
        """Close the listeners of namespaces on brokers."""

        async def close(server: BrokerServer) -> None:
            for name in names:
                server.namespaces.close(name)

        _on_each(self._of(broker_ids), close, _CALL_SECONDS)

    def open_names(self, broker_id: int) -> Collection[str]:
        """Return the namespaces that are open on a broker."""
        return list(self._running()[broker_id].server.namespaces.names)

    def remove(self, names: Collection[str]) -> None:
        """Remove what closed namespaces had."""
        _on_each(
            self._running(), lambda server: server.namespaces.remove_coordinated(names), _REMOVAL_SECONDS
        )
        _on_each(
            self._of([self._controller_id()]),
            lambda server: server.namespaces.remove_shared(names),
            _REMOVAL_SECONDS,
        )

    def forget(self, name: str) -> None:
        """Drop what is kept for a closed namespace."""
        self._faults.pop(name, None)

    def _of(self, broker_ids: Collection[int]) -> dict[int, BrokerThread]:
        running = self._running()
        return {broker_id: running[broker_id] for broker_id in broker_ids if broker_id in running}


def _on_each(
    threads: Mapping[int, BrokerThread], call: Callable[[BrokerServer], Awaitable[T]], timeout_seconds: float
) -> dict[int, T]:
    """Call a function with each broker, on the broker's own loop, at the same time; return the results by id.

    Raises:
        ClusterError: a call failed or did not end in time; the message says why.
    """
    futures: dict[int, Future[T]] = {broker_id: thread.submit(call) for broker_id, thread in threads.items()}
    results = {}
    failures = []
    for broker_id, future in futures.items():
        try:
            results[broker_id] = future.result(timeout_seconds)
        except FutureTimeoutError:
            future.cancel()
            failures.append(f"broker {broker_id} did not answer within {timeout_seconds:g} s")
        except ValueError:
            raise
        except Exception as error:
            failures.append(f"broker {broker_id}: {error!r}")
    if failures:
        raise ClusterError(f"namespaces: {'; '.join(failures)}")
    return results
