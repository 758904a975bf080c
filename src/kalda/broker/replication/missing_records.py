"""Getting back from other replicas what a damaged disk took from the logs here.

A log that was damaged has missing offsets (`kalda.storage.missing_offsets`). Whether the broker leads or
follows the partition, it asks the other replicas for just these records and puts them where they belong.
Until then reads there get KAFKA_STORAGE_ERROR, which clients retry, and a follower does not fetch: so it
cannot join the in-sync replicas without the records.

The search is given up, and readers skip the offsets, when every other replica has answered that it lacks
them, too, or when the patience with those that do not answer is over. A follower waits for its leader's
answer in any case. Replicas that come back later are still asked.

The records are asked for as Kafka's tools ask, by replica id -2: any replica answers, up to its own high
watermark. What was never committed is not worth a search: a follower cuts it off as soon as its leader has
answered that it has committed nothing there. Without that answer it keeps its end: it may be elected next,
and a leader with a shorter log would cut committed records off the others.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Final

from kalda.broker.partition import DEBUGGING_REPLICA_ID
from kalda.broker.replication.follower.ports import LeaderConnection, LeaderDialer
from kalda.common.api_keys import ApiKey
from kalda.common.clock import Clock
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.protocol.errors import ProtocolError
from kalda.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from kalda.storage.environment import LogEnvironment
from kalda.storage.errors import LOG_ERRORS, LogStorageError
from kalda.storage.gap_filling import GapFiller
from kalda.storage.missing_offsets import OffsetRange

if TYPE_CHECKING:
    from kalda.broker.partition import Partition

_logger: Final = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 30.0
"""How long replicas that do not answer keep readers from skipping; a restart of a broker takes less."""
PAUSE_SECONDS: Final = 0.25
"""Between two rounds while readers wait."""
LATE_PAUSE_SECONDS: Final = 30.0
"""Between two rounds when they do not wait any more."""
REQUEST_SECONDS: Final = 10.0
FETCH_BYTES: Final = 4 * 1024 * 1024
_REPLICA_STATE_FROM: Final = 15
"""The version of Fetch in which the replica id moved into a struct."""
_CONSUMER_ID: Final = -1


class _Answer(Enum):
    """What a replica says of a gap."""

    FILLED = "it has all records"
    NOTHING_COMMITTED = "its high watermark is not above the next record"
    LACKING = "it lacks the next record for good"
    SEARCHING = "it lacks the next record and searches for it itself"
    UNCLEAR = "it cannot say now"


_ANSWERS: Final[dict[int, _Answer]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: _Answer.LACKING,
    ErrorCode.OFFSET_NOT_AVAILABLE: _Answer.SEARCHING,
}


class _Search:
    """The search for one log's missing records."""

    def __init__(self, partition: "Partition", now: float) -> None:
        self.partition: Final = partition
        self.began_at: Final = now
        self.due = now
        self.is_held = False
        """Whether the partition is to be followed when the search is over."""
        self.filler: GapFiller | None = None


class MissingRecords:
    """Searches for the missing records of this broker's logs; `run` does the work."""

    def __init__(
        self,
        broker_id: int,
        environment: LogEnvironment,
        dialer: LeaderDialer,
        find_broker: Callable[[int], BrokerEndpoint | None],
        clock: Clock,
    ) -> None:
        self._broker_id: Final = broker_id
        self._environment: Final = environment
        self._dialer: Final = dialer
        self._find_broker: Final = find_broker
        self._clock: Final = clock
        self._searches: Final[dict[TopicPartition, _Search]] = {}
        self._attention: Final = asyncio.Event()
        self.on_settled: Callable[[Partition], None] = lambda _: None
        """Called with a partition that was held, when it may be followed."""

    # What changes of roles call.

    def take(self, partition: "Partition") -> bool:
        """Begin to search for what the partition's log lacks; tell whether to follow only when that is over.

        Calling again at a new role goes on with the search.
        """
        missing = partition.log.missing
        if not missing.ranges:
            return False
        if not any(replica != self._broker_id for replica in partition.replicas):
            return False
        search = self._searches.get(partition.topic_partition)
        if search is None or search.partition is not partition:
            self.drop(partition.topic_partition)
            search = self._searches[partition.topic_partition] = _Search(partition, self._clock.monotonic())
        search.is_held = not missing.is_given_up and not partition.is_leader
        missing.is_withheld = not missing.is_given_up
        search.due = self._clock.monotonic()
        self._attention.set()
        return search.is_held

    def drop(self, topic_partition: TopicPartition) -> None:
        """Search no longer; the log is not touched any more when this returns."""
        search = self._searches.pop(topic_partition, None)
        if search is not None and search.filler is not None:
            search.filler.abandon()

    # The search.

    async def run(self) -> None:
        """Search until cancelled."""
        try:
            while True:
                self._attention.clear()
                now = self._clock.monotonic()
                for search in tuple(self._searches.values()):
                    if search.due <= now and self._is_current(search):
                        await self._try(search)
                due = min((search.due for search in self._searches.values()), default=None)
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if due is None else max(0.0, due - now)):
                        await self._attention.wait()
        finally:
            for topic_partition in tuple(self._searches):
                self.drop(topic_partition)

    def _is_current(self, search: _Search) -> bool:
        return self._searches.get(search.partition.topic_partition) is search

    async def _try(self, search: _Search) -> None:
        try:
            await self._round(search)
        except Exception:
            # One partition's trouble must not end the others', nor the broker.
            _logger.exception("%s: the search for missing records failed", search.partition.topic_partition)
            search.due = self._clock.monotonic() + LATE_PAUSE_SECONDS

    async def _round(self, search: _Search) -> None:
        """Ask every other replica once, then decide how the search stands."""
        partition = search.partition
        log = partition.log
        lacking: set[int] = set()
        others = self._others(partition)
        for broker_id in others:
            if not log.missing.ranges:
                break
            try:
                if await self._ask(search, broker_id):
                    lacking.add(broker_id)
            except (ConnectionError, ProtocolError) as error:
                _logger.debug("%s: broker %d not asked: %s", partition.topic_partition, broker_id, error)
            except (OSError, *LOG_ERRORS) as error:
                _logger.error("%s: missing records not put back: %s", partition.topic_partition, error)
            if not self._is_current(search):
                return
        if not log.missing.ranges:
            _logger.warning("%s: nothing is missing any more", partition.topic_partition)
            del self._searches[partition.topic_partition]
            self._settle(search)
            return
        now = self._clock.monotonic()
        has_answered = partition.is_leader or partition.leader_id in lacking
        is_over = lacking.issuperset(others)
        if is_over or (has_answered and now - search.began_at >= PATIENCE_SECONDS):
            self._give_up(search, is_over=is_over)
        search.due = now + (LATE_PAUSE_SECONDS if log.missing.is_given_up else PAUSE_SECONDS)
        if is_over:
            del self._searches[partition.topic_partition]

    def _others(self, partition: "Partition") -> list[int]:
        """Return the other replicas, those first that are likeliest to have everything."""
        others = [replica for replica in partition.replicas if replica != self._broker_id]
        return sorted(
            others, key=lambda replica: (replica != partition.leader_id, replica not in partition.isr)
        )

    def _cut_uncommitted(self, search: _Search, offset: int, end: int) -> None:
        """Cut a follower's log at `offset`, in a gap up to `end`, if nothing behind it is committed.

        The leader has answered that it has committed nothing at `offset`; fetching brings the rest.
        """
        log = search.partition.log
        if end >= log.log_end_offset or offset >= log.high_watermark:
            log.truncate_to(offset)
            _logger.warning(
                "%s: cut at %d, where records are missing that the leader has not committed",
                search.partition.topic_partition,
                offset,
            )

    def _settle(self, search: _Search) -> None:
        partition = search.partition
        partition.log.missing.is_withheld = False
        if search.is_held:
            search.is_held = False
            if not (partition.is_leader or partition.is_gone):
                self.on_settled(partition)

    def _give_up(self, search: _Search, *, is_over: bool) -> None:
        log = search.partition.log
        if log.missing.is_given_up:
            return
        log.missing.is_given_up = True
        _logger.error(
            "%s: offsets %s are lost here and %s; readers skip them",
            search.partition.topic_partition,
            ", ".join(map(str, log.missing.ranges)),
            "at all other replicas"
            if is_over
            else f"a replica did not answer for {PATIENCE_SECONDS:.0f} s (it is asked again later)",
        )
        self._settle(search)

    async def _ask(self, search: _Search, broker_id: int) -> bool:
        """Take what one replica has; tell whether it lacks some of the records for good.

        Raises:
            ConnectionError, ProtocolError: it does not answer.
            StorageError, RecordsError: what it sent could not be put in place.
        """
        endpoint = self._find_broker(broker_id)
        if endpoint is None:
            raise ConnectionError("its address is not known")
        connection = await self._dialer.dial(
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{self._broker_id}-missing-records",
            timeout_seconds=REQUEST_SECONDS,
        )
        try:
            is_lacking = False
            for gap in self._gaps(search):
                answer = await self._fill(search, connection, gap, broker_id)
                is_lacking |= answer in (_Answer.LACKING, _Answer.SEARCHING)
            return is_lacking
        finally:
            connection.close()

    def _gaps(self, search: _Search) -> Iterator[OffsetRange]:
        """Iterate over the gaps of now; those that are filled or cut meanwhile are left out."""
        missing = search.partition.log.missing
        after = -1
        while self._is_current(search):
            gap = next((each for each in missing.ranges if each.first > after), None)
            if gap is None:
                return
            # What one replica lacks in the middle of a gap is not asked of it again.
            after = gap.end - 1
            yield gap

    async def _fill(
        self, search: _Search, connection: LeaderConnection, gap: OffsetRange, broker_id: int
    ) -> _Answer:
        """Fill one gap from its beginning; return why not all of it, if so."""
        partition, log = search.partition, search.partition.log
        filler = search.filler = GapFiller(log, self._environment, gap)
        try:
            answer = await self._fetch_into(filler, search, connection, gap)
            if not self._is_current(search):
                return _Answer.UNCLEAR
            if filler.has_records:
                await self._install(filler)
                if not self._is_current(search):
                    return _Answer.UNCLEAR
            if filler.next_offset >= gap.end and log.missing.holds(gap.end - 1):
                # Compaction has left nothing of the end of the gap, or of all of it.
                log.missing.remove(gap.first, gap.end)
            is_uncommitted = answer in (_Answer.LACKING, _Answer.NOTHING_COMMITTED)
            if is_uncommitted and search.is_held and broker_id == partition.leader_id:
                self._cut_uncommitted(search, filler.next_offset, gap.end)
            return answer
        finally:
            filler.abandon()
            search.filler = None

    async def _fetch_into(
        self, filler: GapFiller, search: _Search, connection: LeaderConnection, gap: OffsetRange
    ) -> _Answer:
        """Fetch until the gap is filled or nothing more comes; return what the last answer says."""
        while filler.next_offset < gap.end:
            data = await self._fetch(connection, search.partition, filler.next_offset)
            if not self._is_current(search):
                return _Answer.UNCLEAR
            if data.error_code:
                return _ANSWERS.get(data.error_code, _Answer.UNCLEAR)
            if not data.records:
                return _Answer.NOTHING_COMMITTED
            assert isinstance(data.records, bytes | bytearray | memoryview), f"a {type(data.records)}"
            before = filler.next_offset
            try:
                filler.append(data.records)
            except LogStorageError:
                raise
            except LOG_ERRORS as error:
                _logger.info("%s: broker asked for %s: %s", search.partition.topic_partition, gap, error)
                return _Answer.LACKING
            if filler.is_due:
                await self._install(filler)
            elif filler.next_offset == before:
                return _Answer.LACKING
        return _Answer.FILLED

    async def _install(self, filler: GapFiller) -> None:
        finished: asyncio.Future[LogStorageError | None] = asyncio.get_running_loop().create_future()

        def done(error: LogStorageError | None) -> None:
            if not finished.done():
                finished.set_result(error)

        filler.install(done)
        error = await finished
        if error is not None:
            raise error

    async def _fetch(
        self, connection: LeaderConnection, partition: "Partition", offset: int
    ) -> PartitionData:
        """Ask for records from `offset` on, without a session and without waiting."""
        name = partition.topic_partition
        has_state = connection.version_of(ApiKey.FETCH) >= _REPLICA_STATE_FROM
        response = await connection.request(
            FetchRequest(
                replica_id=_CONSUMER_ID if has_state else DEBUGGING_REPLICA_ID,
                replica_state=ReplicaState(replica_id=DEBUGGING_REPLICA_ID) if has_state else ReplicaState(),
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=FETCH_BYTES,
                topics=[
                    FetchTopic(
                        topic=name.topic,
                        topic_id=partition.topic_id,
                        partitions=[
                            FetchPartition(
                                partition=name.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
                            )
                        ],
                    )
                ],
            ),
            timeout_seconds=REQUEST_SECONDS,
        )
        assert isinstance(response, FetchResponse), f"a {type(response).__name__}"
        if response.error_code:
            raise ConnectionError(f"a fetch is answered with error {response.error_code}")
        for topic in response.responses:
            for data in topic.partitions:
                return data
        raise ConnectionError("the answer to a fetch has no partition")
