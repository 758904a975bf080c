"""Consumer groups as their members see them: one shard, a clock that stands still, clients that do as told.

Records are replayed as soon as they are decided; `fail_over` begins anew with nothing but them.
"""

import itertools
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.classic.classic_protocol import ClassicProtocol
from kalda.coordinator.group.consumer.classic_members import ClassicMembers
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.consumer.consumer_group_config import ConsumerGroupConfig
from kalda.coordinator.group.consumer.consumer_protocol import ConsumerProtocol
from kalda.coordinator.group.consumer.member import assignment_of
from kalda.coordinator.group.consumer.topics import TopicInfo
from kalda.coordinator.group.group_config import GroupConfig
from kalda.coordinator.group.group_shard import GroupShard, GroupStatistics
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.unit.events.kept_events import KeptEvents

GROUP = "g"


class FakeTopics:
    """Topics that tests create, grow and delete."""

    def __init__(self) -> None:
        self.generation = 0
        self._topics: dict[str, TopicInfo] = {}
        self._ids = itertools.count(1)

    def put(self, name: str, partitions: int) -> UUID:
        """Create a topic, or give it that many partitions."""
        present = self._topics.get(name)
        topic_id = present.topic_id if present is not None else UUID(int=next(self._ids))
        self._topics[name] = TopicInfo(topic_id, name, partitions)
        self.generation += 1
        return topic_id

    def delete(self, name: str) -> None:
        """Delete a topic."""
        del self._topics[name]
        self.generation += 1

    def topic(self, name: str) -> TopicInfo | None:
        return self._topics.get(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name, topic in self._topics.items() if topic.topic_id == topic_id), None)

    def names(self) -> Collection[str]:
        return list(self._topics)

    def partitions(self, names: Iterable[str]) -> set[tuple[str, int]]:
        """Every partition of those of the topics that exist."""
        found = (self._topics.get(name) for name in names)
        return {
            (topic.name, number)
            for topic in found
            if topic is not None
            for number in range(topic.partition_count)
        }


class FakeContext:
    """Timers by name over a clock that `advance` moves."""

    def __init__(self, apply: Callable[[Result[Any]], Any], now_ms: int) -> None:
        self._apply = apply
        self.now_ms = now_ms
        self.timers: dict[str, tuple[int, Callable[[], Result[Any]]]] = {}
        self._deferred: list[tuple[Callable[[], Result[Any]], Pending[Any]]] = []

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def schedule(self, key: str, delay_ms: int, operation: Callable[[], Result[Any]]) -> None:
        self.timers[key] = (self.now_ms + delay_ms, operation)

    def cancel(self, key: str) -> None:
        self.timers.pop(key, None)

    def is_scheduled(self, key: str) -> bool:
        return key in self.timers

    def write(self, operation: Callable[[], Result[Any]]) -> Pending[Any]:
        """Run the operation behind the one that is running, as the runtime does."""
        done: Pending[Any] = Pending()
        self._deferred.append((operation, done))
        return done

    def run_deferred(self) -> None:
        """Run the writes that the shard started during an operation."""
        while self._deferred:
            operation, done = self._deferred.pop(0)
            try:
                result = operation()
            except ApiError as error:
                done.fail(error)
            else:
                done.complete(self._apply(result))

    def advance(self, milliseconds: int) -> None:
        """Let time pass; timers run in order, each at its time."""
        end = self.now_ms + milliseconds
        while True:
            due = [(when, key) for key, (when, _) in self.timers.items() if when <= end]
            if not due:
                break
            when, key = min(due)
            self.now_ms = max(self.now_ms, when)
            self._apply(self.timers.pop(key)[1]())
        self.now_ms = end


@dataclass
class Client:
    """A member as its client keeps it; `owned` is what it uses."""

    member_id: str
    topics: tuple[str, ...] = ()
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    rebalance_timeout_ms: int = 60_000
    epoch: int = 0
    is_unsure: bool = False
    """An answer was lost, so that the next heartbeat tells everything."""
    owned: set[tuple[UUID, int]] = field(default_factory=set)
    given: set[tuple[UUID, int]] | None = None
    """What the coordinator gave last and the client has not taken over yet."""
    errors: list[ErrorCode] = field(default_factory=list)


class ConsumerSimulation:
    """One shard and its surroundings."""

    def __init__(self, **settings: Any) -> None:
        self.config = ConsumerGroupConfig(**{"group_consumer_assignment_interval_ms": 0} | settings)
        self.group_config = GroupConfig(group_initial_rebalance_delay_ms=0)
        self.of_groups: dict[str, dict[str, int]] = {}
        self.topics = FakeTopics()
        self.records: list[CoordinatorRecord] = []
        self.kept = KeptEvents()
        self.clients: dict[str, Client] = {}
        self._ids = itertools.count(1)
        self.shard = self._make()
        self.context = FakeContext(self._apply, 1_000_000)
        self.shard.on_loaded(self.context)

    def _make(self) -> GroupShard:
        return GroupShard(
            0,
            self.group_config,
            GroupStatistics(),
            lambda: str(next(self._ids)),
            lambda shard, classic: ConsumerProtocol(
                shard,
                classic,
                self.config,
                self.topics,
                lambda: f"made-{next(self._ids)}",
                self,
            ),
            events=self.kept,
        )

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the session timeout of the broker's settings, or that of `of_groups`."""
        return self._time("session_timeout_ms", group_id)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the heartbeat interval."""
        return self._time("heartbeat_interval_ms", group_id)

    def assignment_interval_ms(self, group_id: str) -> int:
        """Return the assignment interval."""
        return self._time("assignment_interval_ms", group_id)

    def _time(self, name: str, group_id: str) -> int:
        broker: int = getattr(self.config, f"group_consumer_{name}")
        return self.of_groups.get(group_id, {}).get(name, broker)

    @property
    def protocol(self) -> ConsumerProtocol:
        """The consumer protocol of the shard."""
        assert self.shard.consumer is not None
        return self.shard.consumer

    @property
    def classic(self) -> ClassicProtocol | ClassicMembers:
        """What serves the group's classic members."""
        return self.shard.classic_requests(GROUP)

    def apply(self, records: Iterable[CoordinatorRecord]) -> None:
        """Write records."""
        self.write(Result(list(records), None))

    def write(self, result: Result[Any]) -> Any:
        """Write what a request decided and return its response."""
        return self._apply(result)

    def _apply(self, result: Result[Any]) -> Any:
        for record in result.records:
            self.records.append(record)
            self.shard.replay(len(self.records) - 1, -1, -1, record)
        self.shard.check_invariants(result.records)
        if result.on_written is not None:
            result.on_written(ErrorCode.NONE)
        self.context.run_deferred()
        return result.response

    # The coordinator.

    def fail_over(self, *, compacted: bool = False) -> None:
        """Begin anew with what the log has."""
        self.shard.on_unloaded()
        self.shard = self.replayed(compacted=compacted)
        self.context = FakeContext(self._apply, self.context.now_ms)
        self.shard.on_loaded(self.context)

    def replayed(self, *, compacted: bool = False) -> GroupShard:
        """A shard that has read the log, or what compaction leaves of it."""
        shard = self._make()
        last = {record.key: offset for offset, record in enumerate(self.records)}
        for offset, record in enumerate(self.records):
            if not compacted or last[record.key] == offset:
                shard.replay(offset, -1, -1, record)
        return shard

    def advance(self, milliseconds: int) -> None:
        """Let time pass."""
        self.context.advance(milliseconds)

    @property
    def group(self) -> ConsumerGroup:
        """The group."""
        found = self.shard.groups[GROUP]
        assert isinstance(found, ConsumerGroup)
        return found

    def send(self, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat made of just these fields; an error becomes the response."""
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, **fields)
        try:
            result = self.protocol.heartbeat(request, version, "client", "/host")
        except ApiError as error:
            self.context.run_deferred()
            return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
        response = self._apply(result)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    # Clients.

    def client(self, name: str, *topics: str, **fields: Any) -> Client:
        """A client that has not joined yet."""
        client = self.clients[name] = Client(name, topics, **fields)
        return client

    def beat(self, client: Client, *, loses_response: bool = False) -> ConsumerGroupHeartbeatResponse:
        """One heartbeat: a full one to join, else what it owns."""
        if client.given is not None:
            client.owned &= client.given
        response = self.send(
            member_id=client.member_id,
            member_epoch=client.epoch,
            instance_id=client.instance_id,
            topic_partitions=_partitions(client.owned),
            **(self._told(client) if client.epoch == 0 or client.is_unsure else {}),
        )
        client.is_unsure = loses_response
        if loses_response:
            return response
        code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            client.errors.append(code)
            if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                client.epoch, client.given = 0, None
                client.owned.clear()
            return response
        client.epoch = response.member_epoch
        if response.assignment is not None:
            given = assignment_of(response.assignment.topic_partitions)
            client.given = {(topic_id, number) for topic_id, numbers in given.items() for number in numbers}
            client.owned &= client.given
            if not client.owned - client.given:
                client.owned = set(client.given)
        return response

    def subscribe(self, client: Client) -> ConsumerGroupHeartbeatResponse:
        """Tell a changed subscription, as joining members do and others may; the answer is lost."""
        client.is_unsure = True
        first: dict[str, Any] = {} if client.epoch else {"rebalance_timeout_ms": 1000, "topic_partitions": []}
        return self.send(
            member_id=client.member_id,
            member_epoch=client.epoch,
            instance_id=client.instance_id,
            subscribed_topic_names=list(client.topics),
            **first,
        )

    def leave(self, client: Client, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        """Leave, for good or (-2) for now."""
        response = self.send(member_id=client.member_id, member_epoch=epoch, instance_id=client.instance_id)
        client.owned.clear()
        client.epoch, client.given = 0, None
        return response

    def names(self, client: Client) -> list[str]:
        """What a client uses, as ``topic-partition``."""
        return sorted(f"{self.topics.topic_name(topic_id)}-{number}" for topic_id, number in client.owned)

    def _told(self, client: Client) -> dict[str, Any]:
        return {
            "rebalance_timeout_ms": client.rebalance_timeout_ms,
            "subscribed_topic_names": list(client.topics),
            "subscribed_topic_regex": client.regex,
            "server_assignor": client.assignor,
        }

    # State.

    def state(self, shard: GroupShard | None = None) -> dict[str, Any]:
        """All that records tell of the group."""
        group = (shard or self.shard).groups.get(GROUP)
        if not isinstance(group, ConsumerGroup):
            return {}
        return {
            "epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "members": dict(sorted(group.members.items())),
            "static": dict(sorted(group.static_members.items())),
            "targets": dict(sorted(group.targets.items())),
            "topics": dict(group.topics),
            "regexes": dict(sorted(group.regexes.items())),
            "state": group.state,
            "names": set(group.subscribed_topics(self.topics)),
            "owners": {
                (topic_id, number): group.owner_of(topic_id, number)
                for member in group.members.values()
                for assignment in (member.assigned, member.pending_revocation)
                for topic_id, numbers in assignment.items()
                for number in numbers
            },
            "classic": group.classic_count,
        }


def _partitions(owned: set[tuple[UUID, int]]) -> list[TopicPartitions]:
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(owned, key=lambda each: (each[0].int, each[1])):
        by_topic.setdefault(topic_id, []).append(number)
    return [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_topic.items()]
