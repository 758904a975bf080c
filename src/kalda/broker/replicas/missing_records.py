"""Fetches from other replicas the records that a log on a damaged disk lacks, and puts them into the log.

Such a log has missing offsets (`kalda.storage.missing_offsets`). Whether this broker leads or follows the
partition, it requests exactly these records from the other replicas. Until they are in place, reads of these
offsets get KAFKA_STORAGE_ERROR, which clients retry, and a follower does not fetch, so it cannot join the ISR
without the records.

The search ends without the records, and readers skip the offsets, when every other replica has answered that
it lacks them too, or after `PATIENCE_SECONDS` if some do not answer. A follower needs its leader's answer in
any case. Replicas that return later are still asked. `missing_search` decides this; this module connects,
fetches and fills.

A leader whose own records differ before the missing ones answers where, and its follower truncates there: a
power failure may bring back records that the follower had replaced.

The requests have replica id -2, like those of Kafka's tools: any replica answers, up to its own high
watermark. Records that were never committed are not searched for: a follower truncates them when its leader
has answered that it has committed nothing there. Without that answer it keeps its log end: it may be elected
next, and as a leader with a shorter log it would make others truncate committed records. A leader truncates
them when the search has ended and every follower's fetches have shown that it has none of them either.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kalda.broker.replicas.follower.ports import LeaderConnection, LeaderDialer
from kalda.broker.replicas.follower.truncation import offset_to_truncate_to
from kalda.broker.replicas.missing_search import (
    LATE_PAUSE_SECONDS,
    PATIENCE_SECONDS,
    Answer,
    GapSearch,
    Verdict,
    answer_of,
    fetch_request,
)
from kalda.common.api_keys import ApiKey
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.net.peer.peer_connection import DialOptions
from kalda.protocol.fetch_session import TOPIC_IDS_FROM
from kalda.protocol.messages.fetch import EpochEndOffset, FetchResponse, PartitionData
from kalda.protocol.protocol_errors import ProtocolError
from kalda.runtime.clock import Clock
from kalda.storage.errors import LOG_ERRORS, GapChangedError, LogStorageError
from kalda.storage.leader_epoch_cache import UNDEFINED_EPOCH
from kalda.storage.log_resources import LogResources
from kalda.storage.missing_filler import GapFiller
from kalda.storage.missing_offsets import OffsetRange

if TYPE_CHECKING:
    from kalda.broker.replicas.partition import Partition

logger: Final = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 10.0


class MissingRecords:
    """Searches for the missing records of this broker's logs; `run` does the work."""

    def __init__(
        self,
        broker_id: int,
        resources: LogResources,
        dialer: LeaderDialer,
        find_broker: Callable[[int], BrokerEndpoint | None],
        clock: Clock,
    ) -> None:
        self._broker_id: Final = broker_id
        self._resources: Final = resources
        self._dialer: Final = dialer
        self._find_broker: Final = find_broker
        self._clock: Final = clock
        self._searches: Final[dict[TopicPartition, GapSearch]] = {}
        self._unreachable: Final[set[int]] = set()
        """Brokers without a connection in this pass: one timeout for all partitions is enough."""
        self._attention: Final = asyncio.Event()
        self._on_settled: Callable[[Partition], None] = lambda _: None

    # Changes of roles.

    def listen(self, on_settled: "Callable[[Partition], None]") -> None:
        """Call `on_settled` with each held partition that may be followed from now on."""
        self._on_settled = on_settled

    def take(self, partition: "Partition") -> bool:
        """Search for the records that the partition's log lacks; return whether following waits for them.

        A call for a new role continues the search.
        """
        missing = partition.log.missing
        if not missing.ranges:
            return False
        if not any(replica != self._broker_id for replica in partition.replicas):
            return False
        search = self._searches.get(partition.topic_partition)
        if search is None or search.partition is not partition:
            self.drop(partition.topic_partition)
            search = self._searches[partition.topic_partition] = GapSearch(partition, self._clock.monotonic())
        search.is_held = not missing.is_given_up and not partition.is_leader
        missing.is_withheld = not missing.is_given_up
        search.due = self._clock.monotonic()
        self._attention.set()
        return search.is_held

    def is_searching(self, topic_partition: TopicPartition) -> bool:
        """Return whether records may still be put into the partition's log."""
        return topic_partition in self._searches

    def drop(self, topic_partition: TopicPartition) -> None:
        """Stop a search; when this returns, it does not touch the log any more."""
        search = self._searches.pop(topic_partition, None)
        if search is not None and search.filler is not None:
            search.filler.abandon()

    # The search.

    async def run(self) -> None:
        """Search until cancelled."""
        try:
            while True:
                self._attention.clear()
                delay = await self.search_due()
                with suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await self._attention.wait()
        finally:
            for topic_partition in tuple(self._searches):
                self.drop(topic_partition)

    async def search_due(self) -> float | None:
        """Do one round of each search that is due; return the seconds until the next, or ``None``."""
        now = self._clock.monotonic()
        self._unreachable.clear()
        for search in tuple(self._searches.values()):
            if search.due <= now and self._is_current(search):
                await self._try(search)
        due = min((search.due for search in self._searches.values()), default=None)
        return None if due is None else max(0.0, due - self._clock.monotonic())

    def _is_current(self, search: GapSearch) -> bool:
        return self._searches.get(search.partition.topic_partition) is search

    async def _try(self, search: GapSearch) -> None:
        search.begin_round()
        try:
            await self._ask_all(search)
        except Exception:
            # A failure for one partition must not stop the others or the broker.
            logger.exception("%s: the search for missing records failed", search.partition.topic_partition)
            if self._is_current(search):
                self._conclude(search)
                search.due = self._clock.monotonic() + LATE_PAUSE_SECONDS
        else:
            if self._is_current(search):
                self._conclude(search)

    async def _ask_all(self, search: GapSearch) -> None:
        """Ask each other replica once, until nothing is missing."""
        partition = search.partition
        missing = partition.log.missing
        for broker_id in search.others():
            if not missing.ranges:
                return
            try:
                await self._ask(search, broker_id)
            except (ConnectionError, ProtocolError) as error:
                logger.debug("%s: cannot ask broker %d: %s", partition.topic_partition, broker_id, error)
            except GapChangedError as error:
                logger.info("%s", error)
            except (OSError, *LOG_ERRORS) as error:
                search.note_disk_error()
                logger.debug("%s: cannot store missing records: %s", partition.topic_partition, error)
            if not self._is_current(search):
                return

    def _conclude(self, search: GapSearch) -> None:
        """Act on the verdict on a round."""
        name = search.partition.topic_partition
        verdict = search.judge(self._clock.monotonic())
        if verdict not in (Verdict.FILLED, Verdict.GOES_ON):
            self._give_up(search, verdict)
        if verdict is not Verdict.FILLED and self._truncate_end(search):
            verdict = search.judge(self._clock.monotonic())
        if verdict is Verdict.FILLED:
            logger.info("%s: no offsets are missing any more", name)
            self._settle(search)
        if verdict in (Verdict.FILLED, Verdict.LOST) and self._is_current(search):
            del self._searches[name]

    def _truncate_end(self, search: GapSearch) -> bool:
        offset = search.unrecoverable_end()
        if offset is None:
            return False
        try:
            search.partition.truncate_end(offset)
        except LogStorageError as error:
            logger.warning("%s", error)
            return False
        logger.error(
            "%s: truncated to %d: no replica has the records behind it, and none of them was committed",
            search.partition.topic_partition,
            offset,
        )
        return True

    def _settle(self, search: GapSearch) -> None:
        partition = search.partition
        partition.log.missing.is_withheld = False
        if search.is_held:
            search.is_held = False
            if not (partition.is_leader or partition.is_gone):
                self._on_settled(partition)

    def _give_up(self, search: GapSearch, verdict: Verdict) -> None:
        missing = search.partition.log.missing
        if missing.is_given_up:
            return
        missing.is_given_up = True
        if verdict is Verdict.IMPATIENT:
            seconds = f"{PATIENCE_SECONDS:.0f} s"
            others = f"not all other replicas answered within {seconds} (they are asked again later)"
        elif search.is_refused():
            others = "what the other replicas have there does not continue the records here"
        else:
            others = "at all other replicas"
        logger.error(
            "%s: offsets %s are lost here and %s; readers skip them",
            search.partition.topic_partition,
            ", ".join(map(str, missing.ranges)),
            others,
        )
        self._settle(search)

    async def _ask(self, search: GapSearch, broker_id: int) -> None:
        """Fetch what one replica has of the missing records.

        Raises:
            ConnectionError, ProtocolError: the replica does not answer.
            GapChangedError: the search was stopped, or the log truncated.
            LogStorageError: the records cannot be stored.
        """
        connection = await self._dial(broker_id)
        try:
            after = -1
            while self._is_current(search):
                missing = search.partition.log.missing
                gap = next((each for each in missing.ranges if each.first > after), None)
                if gap is None:
                    return
                after = gap.end - 1
                first: int | None = gap.first
                while first is not None:
                    first = await self._fill(search, broker_id, connection, OffsetRange(first, gap.end))
        finally:
            connection.close()

    async def _dial(self, broker_id: int) -> LeaderConnection:
        endpoint = self._find_broker(broker_id)
        if endpoint is None:
            raise ConnectionError("its address is not known")
        if broker_id in self._unreachable:
            raise ConnectionError("it could not be reached just before")
        try:
            return await self._dialer.dial(
                endpoint.host,
                endpoint.port,
                DialOptions(
                    client_id=f"broker-{self._broker_id}-missing-records", timeout_seconds=REQUEST_SECONDS
                ),
            )
        except ConnectionError:
            self._unreachable.add(broker_id)
            raise

    async def _fill(
        self, search: GapSearch, broker_id: int, connection: LeaderConnection, gap: OffsetRange
    ) -> int | None:
        """Fill one gap from its start; return where records continue after ones that the replica lacks."""
        log = search.partition.log
        filler = search.filler = GapFiller(log, self._resources, gap, search.partition.leader_epoch)
        try:
            resume = await self._fetch_into(filler, search, broker_id, connection, gap)
            if filler.has_records and self._is_current(search):
                await self._install(filler)
            if not self._is_current(search):
                return None
            if filler.next_offset >= gap.end and log.missing.holds(gap.end - 1):
                # Compaction left no records at the end of the gap, or in all of it.
                with log.disk_errors.raised("note what is not missing in"):
                    log.missing.remove(gap.first, gap.end)
            if search.is_uncommitted(broker_id, filler.next_offset, gap.end):
                log.truncate_to(filler.next_offset)
                logger.warning(
                    "%s: truncated to %d, where records are missing that the leader has not committed",
                    search.partition.topic_partition,
                    filler.next_offset,
                )
            return resume
        finally:
            filler.abandon()
            search.filler = None

    async def _fetch_into(
        self,
        filler: GapFiller,
        search: GapSearch,
        broker_id: int,
        connection: LeaderConnection,
        gap: OffsetRange,
    ) -> int | None:
        """Fetch until the gap is filled or the replica has no more; return as `_fill` does."""
        while filler.next_offset < gap.end:
            before = filler.next_offset
            asks_leader = not search.partition.is_leader and broker_id == search.partition.leader_id
            leader_epoch = search.partition.leader_epoch
            last_epoch = filler.last_epoch if asks_leader else UNDEFINED_EPOCH
            data = await self._fetch(connection, search.partition, before, last_epoch)
            if not self._is_current(search):
                return None
            answer = answer_of(data)
            search.note(broker_id, before, answer)
            if answer is Answer.DIVERGES:
                if search.partition.leader_epoch == leader_epoch and not search.partition.is_leader:
                    _truncate_to_leader(search.partition, gap, data.diverging_epoch)
                return None
            if answer is not Answer.RECORDS:
                return None
            assert isinstance(data.records, bytes | bytearray | memoryview), f"a {type(data.records)}"
            resume: int | None = None
            try:
                resume = filler.append(data.records)
            except LogStorageError:
                raise
            except LOG_ERRORS as error:
                logger.info("%s: broker %d: %s", search.partition.topic_partition, broker_id, error)
                search.note(broker_id, filler.next_offset, Answer.UNFIT)
                return None
            if resume is not None or filler.next_offset == before:
                search.note(broker_id, filler.next_offset, Answer.BEHIND)
                return resume
            if filler.is_due:
                await self._install(filler)
                if not self._is_current(search):
                    return None
        return None

    async def _install(self, filler: GapFiller) -> None:
        finished: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

        def done(error: Exception | None) -> None:
            if not finished.done():
                finished.set_result(error)

        filler.install(done)
        error = await finished
        if error is not None:
            raise error

    async def _fetch(
        self, connection: LeaderConnection, partition: "Partition", offset: int, last_epoch: int
    ) -> PartitionData:
        """Request records from `offset` on; raises `ConnectionError`.

        `last_epoch` is the leader epoch of the record before, if the leader is asked; otherwise -1.
        """
        name = partition.topic_partition
        version = connection.version_of(ApiKey.FETCH)
        if not partition.is_named_by_id:
            version = min(version, TOPIC_IDS_FROM - 1)
        request = fetch_request(
            name,
            partition.topic_id,
            offset,
            version,
            leader_epoch=partition.leader_epoch if last_epoch >= 0 else UNDEFINED_EPOCH,
            last_fetched_epoch=last_epoch,
        )
        response = await connection.request(request, timeout_seconds=REQUEST_SECONDS, version=version)
        assert isinstance(response, FetchResponse), f"a {type(response).__name__}"
        if response.error_code:
            raise ConnectionError(f"the response to a fetch has error {response.error_code}")
        for topic in response.responses:
            for data in topic.partitions:
                if data.partition_index == name.partition:
                    return data
        raise ConnectionError(f"the response to a fetch lacks {name}")


def _truncate_to_leader(partition: "Partition", gap: OffsetRange, leader: EpochEndOffset) -> None:
    """Truncate a follower's log where it diverges from its leader's, as a fetch at the log end would.

    Records that come after the gap hide such a difference from a fetch at the log end.

    Raises:
        LogStorageError: the disk failed.
    """
    log = partition.log
    offset = min(offset_to_truncate_to(log, leader.epoch, leader.end_offset), gap.first)
    logger.warning(
        "%s: truncating from %d to %d: before the missing offsets %s the leader has other records, "
        "its epoch %d ends at %d",
        partition.topic_partition,
        log.log_end_offset,
        offset,
        gap,
        leader.epoch,
        leader.end_offset,
    )
    log.truncate_to(offset)
