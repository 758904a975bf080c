"""Reads and writes the state of share partitions at their share coordinators, on this broker or another one.

What fails because the coordinator moves, loads or cannot be reached is tried again for some seconds. Work for
the same broker, kind and group shares a request. Kafka's counterparts are ``DefaultStatePersister`` and
``PersisterStateManager``.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, Generic, TypeVar

from kalda.broker.internal_topics.internal_topics import InternalTopics
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.topics.topic_names import SHARE_GROUP_STATE_TOPIC
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.common.types import UUID, TopicPartition
from kalda.coordinator.share.delivery_state import PartitionState, StateRange
from kalda.coordinator.share.share_coordinator import ShareCoordinator
from kalda.coordinator.share.share_records import SharePartitionKey
from kalda.coordinator.share.share_shard import StateChange
from kalda.net.peer.dialer import Dialer
from kalda.net.peer.peer_batches import PeerBatches
from kalda.net.peer.peer_connection import PeerConnection
from kalda.protocol.messages import delete_share_group_state as delete_messages
from kalda.protocol.messages import initialize_share_group_state as initialize_messages
from kalda.protocol.messages import read_share_group_state as read_messages
from kalda.protocol.messages import read_share_group_state_summary as summary_messages
from kalda.protocol.messages import write_share_group_state as write_messages
from kalda.protocol.schema import Message
from kalda.runtime.random import Random

T = TypeVar("T")

_CREATE_SECONDS: Final = 1.0
"""The pause between attempts to create the topic, which fail while too few brokers are there."""

RETRIABLE: Final = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    )
)

_RETRY_SECONDS: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0)
"""The pauses between attempts: a coordinator that has moved is loaded within a second or so."""


class Work(Generic[T]):
    """One operation on the state of a share partition."""

    kind: str = ""

    def __init__(self, key: SharePartitionKey) -> None:
        self.key: Final = key
        self.answer: Final[Pending[T]] = Pending()
        self.attempts = 0

    def here(self, coordinator: ShareCoordinator) -> Pending[T]:
        """Do it at this broker's coordinator."""
        raise NotImplementedError

    @staticmethod
    def request(group_id: str, works: "list[Any]") -> Message:
        """Return the request for pieces of work of one kind and group."""
        raise NotImplementedError

    def outcome(self, result: Any) -> T:
        """Return the share partition's result in the response."""
        raise NotImplementedError


class _Initialize(Work[None]):
    kind = "initialize"

    def __init__(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        super().__init__(key)
        self.state_epoch: Final = state_epoch
        self.start_offset: Final = start_offset

    def here(self, coordinator: ShareCoordinator) -> Pending[None]:
        return coordinator.initialize(self.key, self.state_epoch, self.start_offset)

    @staticmethod
    def request(group_id: str, works: "list[_Initialize]") -> Message:
        return initialize_messages.InitializeShareGroupStateRequest(
            group_id=group_id,
            topics=[
                initialize_messages.InitializeStateData(
                    topic_id=topic_id,
                    partitions=[
                        initialize_messages.PartitionData(
                            partition=each.key.partition,
                            state_epoch=each.state_epoch,
                            start_offset=each.start_offset,
                        )
                        for each in of_topic
                    ],
                )
                for topic_id, of_topic in _by_topic(works).items()
            ],
        )

    def outcome(self, result: Any) -> None:
        return None


class _Read(Work[PartitionState]):
    kind = "read"

    def __init__(self, key: SharePartitionKey, leader_epoch: int) -> None:
        super().__init__(key)
        self.leader_epoch: Final = leader_epoch

    def here(self, coordinator: ShareCoordinator) -> Pending[PartitionState]:
        return coordinator.read(self.key, self.leader_epoch)

    @staticmethod
    def request(group_id: str, works: "list[_Read]") -> Message:
        return read_messages.ReadShareGroupStateRequest(
            group_id=group_id,
            topics=[
                read_messages.ReadStateData(
                    topic_id=topic_id,
                    partitions=[
                        read_messages.PartitionData(
                            partition=each.key.partition, leader_epoch=each.leader_epoch
                        )
                        for each in of_topic
                    ],
                )
                for topic_id, of_topic in _by_topic(works).items()
            ],
        )

    def outcome(self, result: read_messages.PartitionResult) -> PartitionState:
        ranges = tuple(
            StateRange(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in result.state_batches
        )
        return PartitionState(result.state_epoch, result.start_offset, self.leader_epoch, ranges=ranges)


class _Write(Work[None]):
    kind = "write"

    def __init__(self, key: SharePartitionKey, change: StateChange) -> None:
        super().__init__(key)
        self.change: Final = change

    def here(self, coordinator: ShareCoordinator) -> Pending[None]:
        return coordinator.write(self.key, self.change)

    @staticmethod
    def request(group_id: str, works: "list[_Write]") -> Message:
        return write_messages.WriteShareGroupStateRequest(
            group_id=group_id,
            topics=[
                write_messages.WriteStateData(
                    topic_id=topic_id, partitions=[each.data() for each in of_topic]
                )
                for topic_id, of_topic in _by_topic(works).items()
            ],
        )

    def data(self) -> write_messages.PartitionData:
        change = self.change
        return write_messages.PartitionData(
            partition=self.key.partition,
            state_epoch=change.state_epoch,
            leader_epoch=change.leader_epoch,
            start_offset=change.start_offset,
            delivery_complete_count=change.complete_count,
            state_batches=[
                write_messages.StateBatch(
                    first_offset=each.first,
                    last_offset=each.last,
                    delivery_state=each.state,
                    delivery_count=each.deliveries,
                )
                for each in change.ranges
            ],
        )

    def outcome(self, result: Any) -> None:
        return None


class _Delete(Work[None]):
    kind = "delete"

    def here(self, coordinator: ShareCoordinator) -> Pending[None]:
        return coordinator.delete(self.key)

    @staticmethod
    def request(group_id: str, works: "list[_Delete]") -> Message:
        return delete_messages.DeleteShareGroupStateRequest(
            group_id=group_id,
            topics=[
                delete_messages.DeleteStateData(
                    topic_id=topic_id,
                    partitions=[
                        delete_messages.PartitionData(partition=each.key.partition) for each in of_topic
                    ],
                )
                for topic_id, of_topic in _by_topic(works).items()
            ],
        )

    def outcome(self, result: Any) -> None:
        return None


class _Summary(Work[PartitionState | None]):
    kind = "summary"

    def here(self, coordinator: ShareCoordinator) -> Pending[PartitionState | None]:
        return coordinator.summary(self.key)

    @staticmethod
    def request(group_id: str, works: "list[_Summary]") -> Message:
        return summary_messages.ReadShareGroupStateSummaryRequest(
            group_id=group_id,
            topics=[
                summary_messages.ReadStateSummaryData(
                    topic_id=topic_id,
                    partitions=[
                        summary_messages.PartitionData(partition=each.key.partition, leader_epoch=-1)
                        for each in of_topic
                    ],
                )
                for topic_id, of_topic in _by_topic(works).items()
            ],
        )

    def outcome(self, result: summary_messages.PartitionResult) -> PartitionState | None:
        if result.state_epoch < 0:
            return None
        return PartitionState(
            result.state_epoch, result.start_offset, result.leader_epoch, result.delivery_complete_count
        )


class ShareStates:
    """The state of share partitions, for what this broker leads and for the groups that it coordinates."""

    def __init__(
        self,
        broker_id: int,
        cache: MetadataCache,
        internal_topics: InternalTopics,
        coordinator: ShareCoordinator,
        dialer: Dialer,
        random: Random,
        *,
        listener: str,
        timeout_ms: int,
    ) -> None:
        """`coordinator` serves what this broker leads; other brokers are asked over `listener`."""
        self._broker_id: Final = broker_id
        self._cache: Final = cache
        self._internal_topics: Final = internal_topics
        self._coordinator: Final = coordinator
        self._timeout_seconds: Final = timeout_ms / 1000
        self._loop: Final = asyncio.get_running_loop()
        self._is_topic_due: Final = asyncio.Event()
        self._peers: Final = PeerBatches[Work[Any]](
            "share state",
            dialer,
            broker_id,
            cache,
            random,
            listener=listener,
            timeout_ms=timeout_ms,
            request=self._request,
            failed=self._fail_all,
        )

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Pending[None]:
        """Create state that begins at an offset; -1 leaves the choice to the leader."""
        return self._begin(_Initialize(key, state_epoch, start_offset))

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Pending[PartitionState]:
        """Read state as the leader of the partition, and fence earlier leaders."""
        return self._begin(_Read(key, leader_epoch))

    def write(self, key: SharePartitionKey, change: StateChange) -> Pending[None]:
        """Write a change of state."""
        return self._begin(_Write(key, change))

    def summary(self, key: SharePartitionKey) -> Pending[PartitionState | None]:
        """Read where a share partition begins, None if it has no state."""
        return self._begin(_Summary(key))

    def delete(self, key: SharePartitionKey) -> Pending[None]:
        """Delete state."""
        return self._begin(_Delete(key))

    async def run(self) -> None:
        """Send requests to other brokers, and create the topic when it is missing, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._peers.run(), name="share state requests")
            while True:
                await self._is_topic_due.wait()
                self._is_topic_due.clear()
                await self._internal_topics.create_topic(SHARE_GROUP_STATE_TOPIC)
                await asyncio.sleep(_CREATE_SECONDS)

    def _begin(self, work: Work[T]) -> Pending[T]:
        self._attempt(work)
        return work.answer

    def _attempt(self, work: Work[Any]) -> None:
        number = self._coordinator.partition_for(work.key.coordinator_key)
        led = self._cache.partition(TopicPartition(SHARE_GROUP_STATE_TOPIC, number))
        if led is None or led.leader < 0:
            if SHARE_GROUP_STATE_TOPIC not in self._cache:
                self._is_topic_due.set()
            self._failed(work, ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif led.leader == self._broker_id:
            work.here(self._coordinator).add_done(partial(self._done_here, work))
        else:
            self._peers.submit(led.leader, work)

    def _done_here(self, work: Work[Any], done: Pending[Any]) -> None:
        if done.error is None:
            work.answer.complete(done.value)
        else:
            self._failed(work, done.error)

    def _failed(self, work: Work[Any], error: Exception) -> None:
        """Try again later, or give up."""
        if (
            isinstance(error, ApiError)
            and error.code in RETRIABLE
            and work.attempts < len(_RETRY_SECONDS)
            and not work.answer.is_done
        ):
            pause = _RETRY_SECONDS[work.attempts]
            work.attempts += 1
            self._loop.call_later(pause, self._attempt, work)
        else:
            work.answer.fail(error)

    def _fail_all(self, works: list[Work[Any]]) -> None:
        for work in works:
            self._failed(work, ApiError(ErrorCode.NETWORK_EXCEPTION))

    async def _request(self, connection: PeerConnection, works: list[Work[Any]]) -> None:
        left = list(works)
        while left:
            # A request names a share partition once.
            together: dict[SharePartitionKey, Work[Any]] = {}
            first, later = left[0], []
            for each in left:
                is_alike = each.kind == first.kind and each.key.group_id == first.key.group_id
                if is_alike and each.key not in together:
                    together[each.key] = each
                else:
                    later.append(each)
            try:
                await self._ask(connection, first, together)
            except ConnectionError:
                self._fail_all([*together.values(), *later])
                connection.close()
                return
            left = later

    async def _ask(
        self, connection: PeerConnection, first: Work[Any], works: dict[SharePartitionKey, Work[Any]]
    ) -> None:
        request = first.request(first.key.group_id, list(works.values()))
        response: Any = await connection.request(request, timeout_seconds=self._timeout_seconds)
        results = {
            SharePartitionKey(first.key.group_id, topic.topic_id, each.partition): each
            for topic in response.results
            for each in topic.partitions
        }
        for key, work in works.items():
            result = results.get(key)
            if result is None:
                self._failed(work, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
            elif result.error_code:
                self._failed(work, ApiError(ErrorCode.of(result.error_code), result.error_message))
            else:
                work.answer.complete(work.outcome(result))


W = TypeVar("W", bound=Work[Any])


def _by_topic(works: Iterable[W]) -> dict[UUID, list[W]]:
    found: dict[UUID, list[W]] = {}
    for each in works:
        found.setdefault(each.key.topic_id, []).append(each)
    return found
