"""Implements the share consumer behind both interfaces: records handed out, and tasks on the loop.

The methods of the second part belong to the loop. Those of the first belong to the user: the thread or task
that polls. The two meet in `_buffer`, to which the loop adds and from which the user takes.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from math import ceil
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from kalda.clients.argument_checks import a_type, check_collection, check_topic_name
from kalda.clients.consumer.completed_fetch import DecodeBound
from kalda.clients.consumer.consumer_errors import RecordDeserializationError
from kalda.clients.consumer.record_decoder import Deserializers
from kalda.clients.errors import ClientError, IllegalStateError, error_for
from kalda.clients.metadata import ClusterMetadata, Metadata
from kalda.clients.metrics.client_info import add_client_info
from kalda.clients.metrics.consumer_metrics import PollTimes
from kalda.clients.metrics.network_metrics import NetworkMetrics, add_loop_thread
from kalda.clients.metrics.registry import ClientMetrics
from kalda.clients.metrics.sensor import SampleConfig
from kalda.clients.metrics.share_metrics import GROUP, ShareCoordinatorMetrics, ShareFetchMetrics
from kalda.clients.network_client import NetworkClient
from kalda.clients.serde import LoadRequiredError
from kalda.clients.share.acknowledgements import (
    ACCEPTED,
    RELEASED,
    AcknowledgeType,
    CommitTicket,
    Decision,
    PartitionAcknowledgements,
    SharePartition,
)
from kalda.clients.share.acquired_records import AcquiredRecords
from kalda.clients.share.share_config import ShareConsumerConfig
from kalda.clients.share.share_fetcher import Decided, OnOutcome, ShareFetcher
from kalda.clients.share.share_member import ShareMember
from kalda.clients.share.share_membership import ShareMembership
from kalda.clients.share.share_record import ShareRecord
from kalda.clients.telemetry.telemetry_reporter import CLOSE_TIMEOUT_S as TELEMETRY_CLOSE_TIMEOUT_S
from kalda.clients.telemetry.telemetry_reporter import TelemetryReporter
from kalda.common.errors import ErrorCode
from kalda.common.extras import missing_package
from kalda.common.types import TopicPartition, random_uuid, uuid_to_text
from kalda.protocol.messages.share_acknowledge import GROUPS_DELAY, REJECT_REASON_MAX, RELEASE_DELAY_MAX_MS
from kalda.runtime.runtime import Runtime
from kalda.runtime.system.runtime import client_runtime

if TYPE_CHECKING:
    import pyarrow as pa

    from kalda.clients.share.share_arrow import ShareArrow

ShareTopics = str | Iterable[str] | re.Pattern[str]
"""The argument of `subscribe`: a topic, several, or a pattern."""
AnyRecord = ShareRecord[Any, Any]
Acknowledged = AnyRecord | RecordDeserializationError
"""What can be acknowledged: a record, or the error in place of one."""

DELAY_MAX_S: Final = RELEASE_DELAY_MAX_MS // 1000
"""How long a released record may wait."""

_OFFSET: Final[Callable[[AnyRecord], int]] = itemgetter(2)
_ERRORS_MAX: Final = 16
"""Errors kept for the user; a program that does not poll loses the oldest."""
_LEAVE_SHARE: Final = 0.8
"""The part of the time of `close` that the sessions may take; leaving the group has the rest."""
_LOCK_MARGIN_SECONDS: Final = 1.0
"""For so long a lock must still hold that is released at the end: the release has to reach the broker."""
_REFUSALS: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION)
"""The metadata errors after which waiting for a topic is useless."""


class _Decoded(NamedTuple):
    """Decoded records, and what they were acquired with."""

    acquired: AcquiredRecords
    records: deque[AnyRecord]


class Rows(Protocol):
    """Rows of `poll_arrow`, all or some: a RecordBatch or Table of pyarrow, which has no types of its own."""

    @property
    def num_rows(self) -> int:
        """How many there are."""

    def column(self, i: str) -> Any:
        """Return a column."""


class ShareCore:
    """One share consumer, without its interface.

    Args:
        config: The settings.
        deserializers: What to do with keys and values.
        on_ready: Called on the loop when a poll that waits should look again.
        on_outcome: Called on the loop with the outcome of acknowledged records.
        runtime: What the consumer knows of its machine; None is this machine.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        deserializers: Deserializers,
        on_ready: Callable[[], None],
        on_outcome: OnOutcome,
        runtime: Runtime | None = None,
    ) -> None:
        runtime = client_runtime() if runtime is None else runtime
        self.config: Final = config
        self._deserializers: Final = deserializers
        self._on_ready: Final = on_ready
        self._loop: Final = asyncio.get_running_loop()
        self.metrics: Final = ClientMetrics(
            {"client-id": config.client_id},
            SampleConfig(config.metrics_sample_window_ms / 1000, config.metrics_num_samples),
            runtime.clock,
        )
        add_client_info(self.metrics)
        self.poll_times: Final = PollTimes(self.metrics, GROUP)
        self.metadata: Final = Metadata(allow_auto_topic_creation=config.allow_auto_create_topics)
        self.network: Final = NetworkClient(
            config, self.metadata, runtime, NetworkMetrics(self.metrics, "consumer")
        )
        self._member: Final = ShareMember(
            config.group_id, uuid_to_text(random_uuid(runtime.random)), config.client_rack or None
        )
        self._membership: Final = ShareMembership(
            self.network,
            self._member,
            config.group_id,
            config.max_poll_interval_ms,
            metrics=ShareCoordinatorMetrics(self.metrics),
            topics=lambda: self._topics,
            on_assigned=self._update_assignment,
            on_error=self._add_error,
        )
        self._fetcher: Final = ShareFetcher(
            config,
            self.network,
            self._member.member_id,
            metrics=ShareFetchMetrics(self.metrics),
            leaders=lambda: self._leaders,
            on_records=self._add_records,
            on_outcome=on_outcome,
            on_error=self._add_error,
        )
        self._telemetry: Final = (
            TelemetryReporter(self.network, self.metrics, self._telemetry_resource, runtime.random.uniform)
            if config.enable_metrics_push
            else None
        )
        self._pattern: re.Pattern[str] | None = None
        self._topics: frozenset[str] = frozenset()
        self._assigned: Mapping[SharePartition, None] = {}
        self._leaders: Mapping[int, Mapping[SharePartition, None]] = {}
        self._errors: Final[deque[ClientError]] = deque(maxlen=_ERRORS_MAX)
        # Added to by the loop, taken from by the user. It holds at most one response of each broker.
        self._buffer: Final[deque[AcquiredRecords]] = deque()
        # The rest is the user's.
        self._rest: Final[deque[_Decoded]] = deque()
        """Records that iteration has decoded and not handed out."""
        self._held: Final[dict[tuple[str, int, int], AcquiredRecords]] = {}
        """What was handed out and not acknowledged for good; nothing in implicit mode."""
        self._undecided: Final[dict[tuple[str, int, int], None]] = {}
        """The part of it that was not acknowledged at all."""
        self._unaccepted: Final[list[tuple[AcquiredRecords, int, int]]] = []
        """The first and last offsets of what was handed out in implicit mode and not acknowledged."""
        self._touched: Final[dict[AcquiredRecords, None]] = {}
        """What has acknowledgements to collect."""
        self._arrow: ShareArrow | None = None

    # For the user

    @property
    def topics(self) -> frozenset[str]:
        """The names of the topics subscribed to; for a pattern, those that match now."""
        return self._topics

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that the group has assigned to this member; other members may have them too."""
        return {each.partition for each in self._assigned}

    @property
    def lock_s(self) -> float:
        """How long a record stays with this consumer, in seconds; 0 before the first fetch."""
        return self._fetcher.lock_s

    def check_subscribed(self) -> None:
        """Check that there is something to read.

        Raises:
            IllegalStateError: nothing is subscribed to.
        """
        if not self._topics and self._pattern is None:
            raise IllegalStateError("nothing to read: subscribe() to topics first")

    def raise_error(self) -> None:
        """Raise the first error that waits for the user, if there is one."""
        if self._errors:
            raise self._errors.popleft()

    def begin_poll(self) -> list[Decided]:
        """Return the acknowledgements to send before more records are handed out.

        Raises:
            IllegalStateError: in explicit mode, a record was not acknowledged.
        """
        if self.config.is_explicit:
            if self._undecided:
                topic, number, offset = next(iter(self._undecided))
                raise IllegalStateError(
                    f"{len(self._undecided)} records of the last poll are not acknowledged, the first at "
                    f"offset {offset} of {topic}-{number}; acknowledge() each before the next poll, or set "
                    "`share.acknowledgement.mode`=implicit"
                )
        else:
            self._decide_unaccepted(ACCEPTED)
        return self.collect()

    def begin_commit(self) -> list[Decided]:
        """Return the acknowledgements to send; in implicit mode all that was handed out is accepted."""
        if not self.config.is_explicit:
            self._decide_unaccepted(ACCEPTED)
        return self.collect()

    def collect(self) -> list[Decided]:
        """Return the acknowledgements since the last call: the user's, and those of unreadable records."""
        found: list[Decided] = []
        for acquired in self._touched:
            acknowledgements = acquired.drain()
            if self._held:
                self._let_go(acquired.source.partition, acknowledgements)
            if acknowledgements.ranges:
                found.append((acquired, acknowledgements))
        self._touched.clear()
        return found

    def acknowledge(
        self,
        records: Acknowledged | Iterable[Acknowledged] | Rows,
        kind: AcknowledgeType,
        delay_s: float | None = None,
        reason: str | None = None,
    ) -> None:
        """Keep the user's acknowledgements for the next poll or commit.

        Raises:
            IllegalStateError: the mode is implicit, or a record is not held by this consumer.
            ValueError: it is no record, no `AcknowledgeType`, or a delay or a reason that is not allowed.
        """
        if not self.config.is_explicit:
            raise IllegalStateError(
                "acknowledge() needs `share.acknowledgement.mode`=explicit; in implicit mode the next poll "
                "accepts all records of the last one"
            )
        if not isinstance(kind, AcknowledgeType):
            raise ValueError(f"kind={kind!r} is {a_type(kind)}; it takes an AcknowledgeType")
        decision = Decision(
            kind,
            GROUPS_DELAY if delay_s is None else _delay_ms(kind, delay_s),
            "" if reason is None else _checked_reason(kind, reason),
        )
        if isinstance(records, ShareRecord | RecordDeserializationError):
            self._acknowledge(records, decision)
            return
        if self._arrow is not None and (names := self._arrow.names(records)) is not None:
            for name in names:
                self._decide(name, decision)
            return
        if not isinstance(records, Iterable):
            raise ValueError(f"record={records!r} is {a_type(records)}; it takes a ShareRecord of poll()")
        for each in cast("Iterable[Acknowledged]", records):
            self._acknowledge(each, decision)

    def take(self, count: int) -> list[AnyRecord]:
        """Return up to `count` records as handed out.

        Raises:
            FetchCorruptionError, RecordDeserializationError: the next record cannot be read.
        """
        self._fill(count)
        taken: list[AnyRecord] = []
        while self._rest and len(taken) < count:
            taken += self._hand_out(count - len(taken))
        return taken

    def take_rows(self, count: int) -> "pa.RecordBatch | None":
        """Return up to `count` records as rows, as handed out; None if there are none.

        Raises:
            ModuleNotFoundError: pyarrow or numpy is not installed.
            FetchCorruptionError: the next batch is damaged.
        """
        arrow = self._arrow_rows()
        self._put_back_rest()
        pieces: list[pa.RecordBatch] = []
        bound = DecodeBound()
        left = count
        while left and not bound.is_reached and (first := self._next_acquired()) is not None:
            piece = first.take_rows(left, arrow, bound, raises=not pieces)
            if piece is not None:
                self._handed_out(first, piece.column("offset").to_pylist())
                pieces.append(piece)
                left -= piece.num_rows
            elif not first.is_read:
                break
            if first.is_read:
                self._buffer.popleft()
        return arrow.join(pieces) if pieces else None

    def next_record(self, count: int) -> AnyRecord | None:
        """Return the next record of an iteration that decodes `count` at once; None without one.

        Raises:
            FetchCorruptionError, RecordDeserializationError: the next record cannot be read.
        """
        if not self._rest:
            self._fill(count)
        return self._hand_out(1)[0] if self._rest else None

    @property
    def has_decoded(self) -> bool:
        """Whether an iteration goes on without another poll."""
        return bool(self._rest)

    @property
    def has_fetched(self) -> bool:
        """Whether records wait to be decoded."""
        return bool(self._buffer)

    def release_undecided(self) -> None:
        """Release records handed out and not acknowledged, so that their deliveries count.

        The end of the session releases the rest, whose delivery does not count. What is not locked any more
        would have the broker refuse the acknowledgements of other records.
        """
        locked_until = self._loop.time() + _LOCK_MARGIN_SECONDS
        for name in self._undecided:
            acquired = self._held[name]
            if acquired.expires_at > locked_until and self._fetcher.is_held(acquired):
                acquired.decide(name[2], RELEASED)
                self._touched[acquired] = None
        self._undecided.clear()
        self._unaccepted[:] = [
            each
            for each in self._unaccepted
            if each[0].expires_at > locked_until and self._fetcher.is_held(each[0])
        ]
        self._decide_unaccepted(RELEASED)

    def give_back_undecided(self) -> None:
        """Keep records handed out until the session ends, so that their deliveries do not count."""
        self._undecided.clear()
        self._unaccepted.clear()

    @property
    def has_pattern(self) -> bool:
        """Whether the subscription is a pattern."""
        return self._pattern is not None

    # On the loop

    def start(self) -> None:
        """Start the tasks."""
        self.metadata.on_update.append(self._on_metadata)
        self.metadata.on_failure = self._add_error
        self.network.start()
        add_loop_thread(self.metrics, "consumer-metrics")
        if self._telemetry is not None:
            self._telemetry.start()

    def subscribe(self, topics: ShareTopics) -> None:
        """Change the subscription.

        Raises:
            IllegalStateError: a name is empty.
            ValueError: a topic's name is not a string.
        """
        if isinstance(topics, re.Pattern):
            self._pattern, self._topics = topics, frozenset()
        else:
            if not isinstance(topics, str):
                check_collection("topics", topics)
            names = [topics] if isinstance(topics, str) else list(topics)
            for name in names:
                check_topic_name(name)
                if not name.strip():
                    raise IllegalStateError(f"cannot subscribe to {name!r}: it is not the name of a topic")
            self._pattern, self._topics = None, frozenset(names)
        self.metadata.set_topics(
            None if self._pattern is not None else self._topics, self.network.clock.monotonic()
        )
        self._on_metadata(self.metadata.snapshot)

    async def unsubscribe(self) -> None:
        """Leave the group; acquired records can still be acknowledged."""
        self._pattern, self._topics = None, frozenset()
        self.metadata.set_topics((), self.network.clock.monotonic())
        await self._membership.leave(self.config.default_api_timeout_ms)

    def polled(self, decided: Iterable[Decided] = ()) -> None:
        """Send acknowledgements, and have the group know that the program polls."""
        self._fetcher.submit(decided)
        try:
            self._membership.polled()
        except ClientError as error:
            self._add_error(error)

    def fetch(self, count: int, decided: Iterable[Decided]) -> None:
        """Fetch records, because a poll for up to `count` found none; send acknowledgements."""
        self.polled(decided)
        if not self._buffer:
            self._fetcher.fetch(count)

    async def commit(
        self, decided: Iterable[Decided], timeout_s: float
    ) -> dict[TopicPartition, ClientError | None]:
        """Send acknowledgements; return the outcome of each partition."""
        ticket = CommitTicket()
        self._fetcher.submit(decided, ticket)
        await self._fetcher.commit(ticket, timeout_s)
        return ticket.outcomes

    async def close(self, decided: Iterable[Decided], timeout_s: float) -> None:
        """Send acknowledgements, close the sessions, leave the group, close the connections."""
        deadline = self._loop.time() + timeout_s

        def left() -> float:
            return max(deadline - self._loop.time(), 0.0)

        async with AsyncExitStack() as ends:
            ends.push_async_callback(lambda: self.network.close(max(left(), 0.1)))
            if self._telemetry is not None:
                telemetry = self._telemetry
                ends.push_async_callback(lambda: telemetry.close(min(TELEMETRY_CLOSE_TIMEOUT_S, left())))
            ends.push_async_callback(self._membership.close)
            self._fetcher.submit(decided)
            await self._fetcher.close(left() * _LEAVE_SHARE)
            self._buffer.clear()
            await self._membership.leave(max(min(round(left() * 1000), self.config.request_timeout_ms), 1))

    # Internals of the user's part

    def _acknowledge(self, record: Acknowledged, decision: Decision) -> None:
        if isinstance(record, ShareRecord):
            name = (record.topic, record.partition, record.offset)
        elif isinstance(record, RecordDeserializationError):
            name = (*record.topic_partition, record.offset)
        else:
            raise ValueError(f"record={record!r} is {a_type(record)}; it takes a ShareRecord of poll()")
        self._decide(name, decision)

    def _decide(self, name: tuple[str, int, int], decision: Decision) -> None:
        acquired = self._held.get(name)
        if acquired is None:
            raise IllegalStateError(
                f"the record at offset {name[2]} of {name[0]}-{name[1]} is not held by this consumer: it was "
                "acknowledged before, or another consumer's poll returned it"
            )
        acquired.decide(name[2], decision)
        self._touched[acquired] = None
        self._undecided.pop(name, None)

    def _fill(self, count: int) -> None:
        """Decode records until there are `count`, in the order in which they were fetched."""
        rest = self._rest
        left = count - sum(len(each.records) for each in rest)
        if left <= 0:
            return
        bound = DecodeBound()
        while left > 0 and not bound.is_reached and (first := self._next_acquired()) is not None:
            try:
                records = first.take(left, self._deserializers, bound, raises=not rest)
            except RecordDeserializationError as error:
                if self.config.is_explicit and not isinstance(error.__cause__, LoadRequiredError):
                    self._held[(*error.topic_partition, error.offset)] = first
                raise
            if records:
                rest.append(_Decoded(first, deque(records)))
                left -= len(records)
            if not first.is_read:
                break
            self._buffer.popleft()

    def _next_acquired(self) -> AcquiredRecords | None:
        """Return the first fetched record that this member still holds."""
        buffer = self._buffer
        now = self._loop.time()
        while buffer:
            first = buffer[0]
            if first.expires_at > now and self._fetcher.is_held(first):
                if first.source not in self._assigned:
                    first.release()
                self._touched[first] = None
                return first
            # Another member may have them by now.
            buffer.popleft()
        return None

    def _put_back_rest(self) -> None:
        """Take back what iteration has decoded and not handed out: rows are asked for instead."""
        while self._rest:
            acquired, records = self._rest.pop()
            for record in reversed(records):
                acquired.put_back(record.offset, record.delivery_count)
            if not self._buffer or self._buffer[0] is not acquired:
                self._buffer.appendleft(acquired)

    def _arrow_rows(self) -> "ShareArrow":
        if self._arrow is None:
            # Imported here: pyarrow is optional, and takes a while to load.
            try:
                from kalda.clients.share.share_arrow import ShareArrow
            except ModuleNotFoundError as error:
                raise missing_package("poll_arrow", "arrow", error) from error
            self._arrow = ShareArrow(check_crcs=self.config.check_crcs)
        return self._arrow

    def _hand_out(self, count: int) -> list[AnyRecord]:
        """Return up to `count` of the records that are decoded; they are of one partition."""
        acquired, records = self._rest[0]
        if len(records) <= count:
            self._rest.popleft()
            taken = list(records)
        else:
            taken = [records.popleft() for _ in range(count)]
        self._handed_out(acquired, list(map(_OFFSET, taken)))
        return taken

    def _handed_out(self, acquired: AcquiredRecords, offsets: list[int]) -> None:
        """Note what the user has to acknowledge, or what the next poll accepts."""
        if self.config.is_explicit:
            names = [(*acquired.source.partition, offset) for offset in offsets]
            self._held.update(dict.fromkeys(names, acquired))
            self._undecided.update(dict.fromkeys(names))
        elif offsets[-1] - offsets[0] == len(offsets) - 1:
            first = offsets[0]
            if self._unaccepted and self._unaccepted[-1][::2] == (acquired, first - 1):
                first = self._unaccepted.pop()[1]
            self._unaccepted.append((acquired, first, offsets[-1]))
        else:
            self._unaccepted.extend((acquired, offset, offset) for offset in offsets)

    def _decide_unaccepted(self, decision: Decision) -> None:
        for acquired, first, last in self._unaccepted:
            acquired.decide_range(first, last, decision)
            self._touched[acquired] = None
        self._unaccepted.clear()

    def _let_go(self, partition: TopicPartition, acknowledgements: PartitionAcknowledgements) -> None:
        """Forget records that are acknowledged for good."""
        renewed = {
            offset
            for each in acknowledgements.ranges
            if each.kind == AcknowledgeType.RENEW
            for offset in range(each.first, each.last + 1)
        }
        for offset in acknowledgements.offsets:
            if offset not in renewed:
                self._held.pop((*partition, offset), None)

    # Internals of the loop's part

    def _add_error(self, error: ClientError) -> None:
        if all(str(error) != str(kept) for kept in list(self._errors)):
            self._errors.append(error)
        self._on_ready()

    def _add_records(self, acquired: AcquiredRecords) -> None:
        self._buffer.append(acquired)
        self._on_ready()

    def _on_metadata(self, snapshot: ClusterMetadata) -> None:
        pattern = self._pattern
        if pattern is not None:
            self._topics = frozenset(
                name
                for name, topic in snapshot.topics.items()
                if pattern.fullmatch(name) and not (topic.is_internal and self.config.exclude_internal_topics)
            )
        for name in sorted(self._topics & snapshot.topics.keys()):
            if (code := snapshot.topics[name].error) in _REFUSALS:
                self._add_error(error_for(code, f"topic {name}"))
        self._membership.subscription_changed()
        self._update_assignment()
        self._on_ready()

    def _update_assignment(self) -> None:
        """Give assigned partitions their topics' names, and their leaders."""
        snapshot = self.metadata.snapshot
        names = snapshot.topic_names
        assigned: dict[SharePartition, None] = {}
        leaders: dict[int, dict[SharePartition, None]] = {}
        for topic_id, numbers in self._member.assigned.items():
            name = names.get(topic_id)
            if name is None:
                self.metadata.request_update()
                continue
            for number in sorted(numbers):
                source = SharePartition(topic_id, TopicPartition(name, number))
                assigned[source] = None
                leader = snapshot.leader(source.partition)
                if leader is None:
                    self.metadata.request_update()
                else:
                    leaders.setdefault(leader.id, {})[source] = None
        self._assigned, self._leaders = assigned, leaders
        self._fetcher.wake()

    def _telemetry_resource(self) -> dict[str, str]:
        known = {
            "group_id": self.config.group_id,
            "group_member_id": self._member.member_id,
            "client_rack": self.config.client_rack,
        }
        return {name: value for name, value in known.items() if value}


def _delay_ms(kind: AcknowledgeType, delay_s: object) -> int:
    if kind is not AcknowledgeType.RELEASE:
        raise ValueError(f"delay_s={delay_s!r} with {kind.name} is not allowed: only a released record waits")
    if isinstance(delay_s, bool) or not isinstance(delay_s, int | float):
        raise ValueError(f"delay_s={delay_s!r} is {a_type(delay_s)}; it takes seconds")
    if not 0 <= delay_s <= DELAY_MAX_S:
        raise ValueError(f"delay_s={delay_s!r} is not allowed: it takes seconds, 0 to {DELAY_MAX_S} (a week)")
    return ceil(delay_s * 1000)


def _checked_reason(kind: AcknowledgeType, reason: object) -> str:
    if kind is not AcknowledgeType.REJECT:
        raise ValueError(f"reason={reason!r} with {kind.name} is not allowed: only a rejected record has one")
    if not isinstance(reason, str):
        raise ValueError(f"reason={reason!r} is {a_type(reason)}; it takes a str")
    if not reason:
        raise ValueError("reason='' is not allowed: it takes a text; None leaves it to the broker")
    try:
        size = len(reason.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"reason={reason!r} is not allowed: UTF-8 does not have it: {error}") from None
    if size > REJECT_REASON_MAX:
        raise ValueError(
            f"reason={reason[:50]!r}... is not allowed: it has {size} bytes of UTF-8, of at most "
            f"{REJECT_REASON_MAX}"
        )
    return reason
