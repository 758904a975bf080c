"""Opens, closes and removes namespaces on brokers that are processes: `ProcessBrokers`.

The brokers take requests for that where ``kalda.namespaces.api.enable`` is set.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from kalda.broker.namespaces.namespace_control import NamespaceOperation
from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.routes import BROKER_WITH_ID
from kalda.clients.loop_thread import LoopThread
from kalda.cluster.schema import ListenerEndpoint
from kalda.common.overriding import override
from kalda.faults import FaultPlan
from kalda.net.client.client_errors import UnsupportedApiError
from kalda.protocol.messages.alter_namespaces import (
    AlterNamespacesRequest,
    AlterNamespacesResponse,
    NamespaceEndpoint,
)
from kalda.testing.process import CommandProcess, KaldaProcessError

_CALL_MS: Final = 20_000
_REMOVAL_MS: Final = 60_000


class NamespaceAdmin(AsyncAdmin):
    """An admin client that opens and closes namespaces."""

    async def alter_namespaces(
        self, request: AlterNamespacesRequest, broker_ids: Collection[int], timeout_ms: int
    ) -> dict[int, AlterNamespacesResponse]:
        """Perform an operation on brokers.

        Raises:
            ClientError: one of them did not do it.
        """
        found = await self._run(_AlterNamespaces(request), broker_ids, timeout_ms, outcomes=False)
        return dict(found.results)


class _AlterNamespaces(AdminOperation[int, AlterNamespacesResponse]):
    title = "namespaces of broker"
    route = BROKER_WITH_ID

    def __init__(self, request: AlterNamespacesRequest) -> None:
        self._request: Final = request

    @override
    def requests(
        self, keys: Sequence[int], context: RequestContext
    ) -> Iterable[AdminRequest[int, AlterNamespacesResponse]]:
        def read(response: AlterNamespacesResponse, answers: Answers[int, AlterNamespacesResponse]) -> None:
            (broker_id,) = keys
            if response.error_code:
                answers.fail(broker_id, response.error_code, response.error_message)
            else:
                answers.succeed(broker_id, response)

        yield AdminRequest.of(self._request, AlterNamespacesResponse, keys, read)


class ProcessBrokers:
    """The brokers of a cluster of processes; implements `NamespaceBrokers`."""

    def __init__(self, processes: Sequence[CommandProcess], open_admin: Callable[[], NamespaceAdmin]) -> None:
        """`processes` are the brokers by id; `open_admin` connects to them as an administrator."""
        self._processes: Final = processes
        self._open_admin: Final = open_admin
        self._client: tuple[LoopThread, NamespaceAdmin] | None = None
        """Made with the first namespace."""

    def end(self) -> None:
        """Close the connections; no call may follow."""
        if self._client is not None:
            thread, admin = self._client
            self._client = None
            thread.call(admin.close(0.0))
            thread.close()

    def serving(self) -> Collection[int]:
        """Return the ids of the brokers that run."""
        return [broker_id for broker_id, each in enumerate(self._processes) if each.is_running]

    def open(
        self,
        broker_ids: Collection[int],
        name: str,
        ports: Mapping[int, int],
        plan: FaultPlan | None,
        announced: Callable[[int, ListenerEndpoint], ListenerEndpoint] | None,
    ) -> dict[int, ListenerEndpoint]:
        """Open a namespace; see `NamespaceBrokers.open`."""
        opened = {}
        for broker_id in broker_ids:
            port = ports.get(broker_id, 0)
            faults = None if plan is None else str(plan)
            request = AlterNamespacesRequest(
                operation=NamespaceOperation.OPEN, names=[name], port=port, faults=faults, endpoints=[]
            )
            (found,) = self._call(request, [broker_id])[broker_id].endpoint
            opened[broker_id] = ListenerEndpoint(
                found.listener, found.host, found.port, found.security_protocol
            )
        if announced is not None:
            self.announce(name, {broker_id: announced(broker_id, each) for broker_id, each in opened.items()})
        return opened

    def announce(self, name: str, endpoints: Mapping[int, ListenerEndpoint]) -> None:
        """Have all brokers return these addresses to clients of the namespace."""
        sent = [
            NamespaceEndpoint(
                broker_id=broker_id,
                listener=each.listener,
                host=each.host,
                port=each.port,
                security_protocol=each.security_protocol,
            )
            for broker_id, each in endpoints.items()
        ]
        self._do(NamespaceOperation.ANNOUNCE, [name], self.serving(), endpoints=sent)

    def close(self, broker_ids: Collection[int], names: Collection[str]) -> None:
        """Close the listeners of namespaces on brokers."""
        self._do(NamespaceOperation.CLOSE, names, broker_ids)

    def open_names(self, broker_id: int) -> Collection[str]:
        """Return the namespaces that are open on a broker; none before the first of the cluster."""
        if self._client is None:
            return []
        return self._do(NamespaceOperation.CLOSE, [], [broker_id])[broker_id].names

    def remove(self, names: Collection[str]) -> None:
        """Remove what closed namespaces had."""
        self._do(NamespaceOperation.REMOVE_COORDINATED, names, self.serving(), timeout_ms=_REMOVAL_MS)
        thread, admin = self._connect()
        controller = thread.call(admin.describe_cluster()).controller
        if controller is None:
            raise KaldaProcessError("the cluster has no controller, so that topics of namespaces stay")
        self._do(NamespaceOperation.REMOVE_SHARED, names, [controller.id], timeout_ms=_REMOVAL_MS)

    def forget(self, name: str) -> None:
        """Do nothing: the brokers have the faults."""

    def _do(
        self,
        operation: NamespaceOperation,
        names: Collection[str],
        broker_ids: Collection[int],
        *,
        endpoints: Iterable[NamespaceEndpoint] = (),
        timeout_ms: int = _CALL_MS,
    ) -> dict[int, AlterNamespacesResponse]:
        request = AlterNamespacesRequest(
            operation=operation, names=list(names), endpoints=list(endpoints), port=0, faults=None
        )
        return self._call(request, broker_ids, timeout_ms)

    def _call(
        self, request: AlterNamespacesRequest, broker_ids: Collection[int], timeout_ms: int = _CALL_MS
    ) -> dict[int, AlterNamespacesResponse]:
        thread, admin = self._connect()
        try:
            return thread.call(admin.alter_namespaces(request, broker_ids, timeout_ms))
        except UnsupportedApiError as error:
            raise KaldaProcessError(
                "brokers that are processes need the setting kalda.namespaces.api.enable=true for namespaces"
            ) from error

    def _connect(self) -> tuple[LoopThread, NamespaceAdmin]:
        if self._client is None:
            self._client = LoopThread("kalda-namespaces"), self._open_admin()
        return self._client
