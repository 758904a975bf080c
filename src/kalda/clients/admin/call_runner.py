"""Runs admin calls on a network client: sends what `AdminCall` says, and reports what came back.

It decides nothing about keys; each round's decisions are those of `admin_call`. A call runs in the task that
awaits it, with one child task for each destination, and leaves none behind.
"""

import asyncio
from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

from kalda.clients.admin.admin_call import (
    AdminCall,
    AdminOperation,
    AdminRequest,
    Dispatch,
    Place,
    RequestContext,
    Target,
)
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.routes import Coordinator, PartitionLeader, leaders_in, leaders_request
from kalda.clients.argument_checks import check_collection
from kalda.clients.errors import ClientError, IllegalStateError, UnsupportedApiError, error_for
from kalda.clients.network_client import (
    BOOTSTRAP_ID_BASE,
    NO_NODE,
    NetworkClient,
    broker_id_of,
    is_coordinator_node_id,
)
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.metadata import MetadataResponse
from kalda.protocol.schema import Message

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_REQUESTS_PER_ROUND_MAX: Final = 32
"""Requests in flight for one destination and round. Some APIs take one group each; a call for thousands of
groups must neither fill a broker's queue nor wait for each response in turn."""


class AdminCallRunner:
    """Runs the calls of one admin client.

    Args:
        client: The connections; open while calls run.
        default_timeout_ms: The time of a call that sets none, `default.api.timeout.ms`.
        request_timeout_ms: The time of one request, `request.timeout.ms`.
        retries_max: `retries`.
    """

    def __init__(
        self, client: NetworkClient, *, default_timeout_ms: int, request_timeout_ms: int, retries_max: int
    ) -> None:
        self.client: Final = client
        self.retries_max: Final = retries_max
        self._default_timeout_ms: Final = default_timeout_ms
        self._request_timeout_ms: Final = request_timeout_ms
        self._last_controller_id = NO_NODE

    async def run(
        self, operation: AdminOperation[K, V], keys: Iterable[K], timeout_ms: int | None = None
    ) -> Outcomes[K, V]:
        """Run one call until each key has a result or an error.

        Raises:
            ValueError: `keys` is a name instead of a list of names; it would mean one-letter names.
        """
        check_collection(operation.title, keys)
        self._check_open()
        return await _Run(self, operation, keys, timeout_ms or self._default_timeout_ms).run()

    async def broker_ids(self, timeout_ms: int | None) -> list[int]:
        """Return the ids of the brokers that are in the cluster now.

        Raises:
            ClientError: no broker can be reached.
        """
        self._check_open()
        timeout_ms = timeout_ms or self._default_timeout_ms
        return sorted((await self.client.refresh_metadata(timeout_ms=timeout_ms)).brokers)

    async def resolve(self, target: Target, timeout_ms: int) -> int:
        """Return the node id to send to.

        Raises:
            ClientError: no broker can be reached, none is the controller now, or the broker is not known.
        """
        if target == BOOTSTRAP_ID_BASE:
            return target
        metadata = self.client.metadata
        if metadata.snapshot.version == 0:
            await self.client.refresh_metadata(timeout_ms=timeout_ms)
        if target is Place.ANY:
            # What this client changed is known to that controller; other brokers receive it a moment later.
            last = self._last_controller_id
            return last if self.client.is_ready(last) else self.client.candidates()[0]
        snapshot = metadata.snapshot
        if target is Place.CONTROLLER:
            if snapshot.controller_id not in snapshot.brokers:
                metadata.request_update()
                raise error_for(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")
            self._last_controller_id = snapshot.controller_id
            return snapshot.controller_id
        assert isinstance(target, int), f"no such place: {target}"
        if target in snapshot.brokers or is_coordinator_node_id(target):
            return target
        metadata.request_update()
        known = ", ".join(map(str, sorted(snapshot.brokers))) or "none"
        what = f"broker {target} is not in the cluster (brokers: {known})"
        raise error_for(ErrorCode.BROKER_NOT_AVAILABLE, what)

    def request_timeout_ms(self, remaining_s: float) -> int:
        """Return the time of a request of a call that has `remaining_s` left."""
        return max(1, min(self._request_timeout_ms, int(remaining_s * 1000)))

    def _check_open(self) -> None:
        if self.client.is_closed:
            raise IllegalStateError("this admin client is closed; open another one")


class _Run(Generic[K, V]):
    """One call under way."""

    def __init__(
        self, runner: AdminCallRunner, operation: AdminOperation[K, V], keys: Iterable[K], timeout_ms: int
    ) -> None:
        self._runner: Final = runner
        self._client: Final = runner.client
        self._clock: Final = runner.client.clock
        self._call: Final[AdminCall[K, V]] = AdminCall(
            operation,
            keys,
            now=self._clock.monotonic(),
            timeout_ms=timeout_ms,
            backoff=runner.client.retry_backoff.seconds,
            retries_max=runner.retries_max,
        )
        self._has_news: Final = asyncio.Event()
        self._coordinators_found: Final[set[str]] = set()

    async def run(self) -> Outcomes[K, V]:
        """Run rounds until each key has ended.

        Raises:
            ValueError: a request cannot carry what it was to carry.
        """
        try:
            return await self._run_rounds()
        except BaseExceptionGroup as group:
            # The tasks are a detail of this class: the caller gets the error itself.
            raise _first_error(group) from group

    async def _run_rounds(self) -> Outcomes[K, V]:
        call = self._call
        async with asyncio.TaskGroup() as group:
            serving: set[asyncio.Task[None]] = set()
            while not call.is_done:
                now = self._clock.monotonic()
                for dispatch in call.due(now):
                    task = group.create_task(self._serve(dispatch), name=f"admin {call.operation.title}")
                    serving.add(task)
                    task.add_done_callback(serving.discard)
                try:
                    async with asyncio.timeout(max(0.0, call.next_due() - self._clock.monotonic())):
                        await self._has_news.wait()
                except TimeoutError:
                    call.expire(self._clock.monotonic(), self._client.last_failure)
                self._has_news.clear()
            for task in serving:
                task.cancel()
        return call.outcomes()

    async def _serve(self, dispatch: Dispatch[K]) -> None:
        """Perform one dispatch, and report how it ended."""
        try:
            if dispatch.target is None:
                await self._locate(dispatch.keys)
            else:
                await self._send_all(dispatch, dispatch.target)
        except ClientError as error:
            self._call.failed(dispatch.keys, error, self._clock.monotonic(), was_sent=False)
        self._has_news.set()

    async def _locate(self, keys: tuple[K, ...]) -> None:
        route = self._call.operation.route
        if isinstance(route, Coordinator):
            nodes = await self._coordinators(route, keys)
        else:
            assert isinstance(route, PartitionLeader), f"{route} has no look-up"
            nodes = await self._leaders(route, keys)
        self._call.located(nodes, self._clock.monotonic())

    async def _coordinators(self, route: Coordinator[K], keys: tuple[K, ...]) -> dict[K, int | ClientError]:
        ids = {key: route.id_of(key) for key in keys}
        for each in ids.values():
            if each in self._coordinators_found:
                # It answered that it is no longer the coordinator, or not at all.
                self._client.forget_coordinator(each, route.kind)
        found = await self._client.coordinators(ids.values(), route.kind)
        self._coordinators_found.update(ids.values())
        return {key: found[each] for key, each in ids.items()}

    async def _leaders(self, route: PartitionLeader[K], keys: tuple[K, ...]) -> dict[K, int | ClientError]:
        partitions = {key: route.partition_of(key) for key in keys}
        response = await self._client.send_to_any(
            leaders_request(partitions.values()), MetadataResponse, timeout_ms=self._timeout_ms()
        )
        found = leaders_in(response, partitions.values())
        return {key: found[partition] for key, partition in partitions.items()}

    async def _send_all(self, dispatch: Dispatch[K], target: Target) -> None:
        """Send the requests of one destination, some of them at a time."""
        timeout_ms = self._timeout_ms()
        node_id = await self._runner.resolve(target, timeout_ms)
        versions = await self._client.ready(node_id, timeout_ms=timeout_ms)
        context = RequestContext(broker_id_of(node_id), versions, timeout_ms)
        requests = self._call.prepare(dispatch, context)
        limit = asyncio.Semaphore(_REQUESTS_PER_ROUND_MAX)
        async with asyncio.TaskGroup() as group:
            for request in requests:
                group.create_task(self._send(node_id, request, limit))

    async def _send(self, node_id: int, request: AdminRequest[K, V], limit: asyncio.Semaphore) -> None:
        async with limit:
            try:
                response = await self._client.send(
                    node_id, _versioned(request), request.response_class, timeout_ms=self._timeout_ms()
                )
            except ClientError as error:
                self._client.metadata.request_update()
                was_sent = not isinstance(error, UnsupportedApiError)
                self._call.failed(request.keys, error, self._clock.monotonic(), was_sent=was_sent)
            else:
                broker = self._client.metadata.snapshot.broker_text(broker_id_of(node_id))
                if self._call.received(request, response, self._clock.monotonic(), broker):
                    # The next round asks the metadata for the controller.
                    self._client.metadata.request_update()
            self._has_news.set()

    def _timeout_ms(self) -> int:
        return self._runner.request_timeout_ms(self._call.deadline - self._clock.monotonic())


def _versioned(request: AdminRequest[K, V]) -> Message | VersionedRequest:
    message, api_key = request.message, request.message.SCHEMA.api_key
    if request.version_max is None or api_key is None:
        return message
    return VersionedRequest(api_key, lambda _: message, version_max=request.version_max)


def _first_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
