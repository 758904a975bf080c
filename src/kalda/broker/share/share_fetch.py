"""Acquires records of share partitions for a ShareFetch request, at once or when there are some.

The records are not read: only the headers of batches are, and the response has slices of segment files. Where
the times or the order of records count, they are read before.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kalda.broker.replicas.partition import Partition
from kalda.broker.share.led_share_partition import LedSharePartition
from kalda.broker.share.record_facts import WAIT_MAX_MS, RecordFacts
from kalda.broker.share.share_partitions import SharePartitions
from kalda.broker.share.share_sessions import PartitionName, ShareSession
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.overriding import override
from kalda.common.purgatory import DelayedOperation
from kalda.coordinator.share.fetched_batch import FetchedBatch
from kalda.coordinator.share.share_partition import BATCH_OFFSETS_MAX, AcquiredRange
from kalda.coordinator.share.share_records import SharePartitionKey
from kalda.records.batch import HEADER_SIZE, MAGIC, BatchHeader, read_header
from kalda.records.errors import NeedMoreBytes, RecordsError
from kalda.storage.errors import LOG_ERRORS, OffsetOutOfRangeError
from kalda.storage.file_records import EMPTY_SLICE, FileSlice
from kalda.storage.unified_log import FetchDataInfo, FetchIsolation

BYTES_MAX: Final = 1 << 20
"""What one fetch takes of one partition: no more records than may be in flight would be acquired anyway, and
other members wait for theirs."""

BATCHES_MAX: Final = 500
"""Batches of one partition that a fetch looks at together: their headers take some 2 ms. What a client
does not get now it gets with its next fetch."""

_ROUNDS_MAX: Final = 8
"""How often a fetch looks at more, where all of that is not for consumers, or not yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFetchParams:
    """The parameters of one request that are the same for all its partitions."""

    group_id: str
    member_id: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    records_max: int
    batch_size: int
    is_strict: bool


@dataclass(slots=True)
class ShareFetched:
    """The outcome of one partition of a request: acquired records, or an error."""

    name: PartitionName
    error: ApiError | None = None
    leader: tuple[int, int] | None = None
    """The leader and its epoch, if it is another broker."""
    records: FileSlice = EMPTY_SLICE
    acquired: Sequence[AcquiredRange] = ()
    is_suspect: bool = False
    """Whether the records come alone, because one of them may be what ends the members that get it."""


class DelayedShareFetch(DelayedOperation):
    """A fetch that waits until records can be acquired; `respond` is called once, unless it is cancelled."""

    __slots__ = (
        "_by_key",
        "_fetched",
        "_is_cancelled",
        "_names",
        "_params",
        "_partitions",
        "_respond",
        "_session",
    )

    def __init__(
        self,
        partitions: SharePartitions,
        params: ShareFetchParams,
        session: ShareSession,
        names: Sequence[PartitionName],
        respond: Callable[[list[ShareFetched]], None],
    ) -> None:
        """`names` are partitions of the session; what it does not name any more by then is not fetched."""
        super().__init__(params.max_wait_ms)
        self._partitions: Final = partitions
        self._params: Final = params
        self._session: Final = session
        self._names: Final = names
        self._respond: Final = respond
        self._by_key: Final[dict[Hashable, PartitionName]] = {}
        """The partition of each key that it watches."""
        self._fetched: list[ShareFetched] = []
        self._is_cancelled = False

    @property
    def keys(self) -> list[Hashable]:
        """The purgatory keys: partitions for new records, and share partitions for released ones."""
        self._by_key.clear()
        for name in self._live_names():
            try:
                partition, led = self._find(name)
            except ApiError:
                continue
            self._by_key[partition] = self._by_key[led] = name
        return list(self._by_key)

    def cancel(self) -> None:
        """Stop waiting without a response: the connection is closed."""
        self._is_cancelled = True
        self.force_complete()

    def try_complete(self) -> bool:
        """Complete if records were acquired, or a partition has an error."""
        if self._is_cancelled or self._fetched:
            return False
        if self._params.min_bytes > 1 and not self._has_bytes():
            return False
        self._fetched = self.acquire()
        return bool(self._fetched) and self.force_complete()

    @override
    def on_event(self, key: Hashable, /) -> bool:
        """Complete if the partition of the key has records or an error; the others have not changed."""
        name, params = self._by_key.get(key), self._params
        if name is None or params.min_bytes > 1 or params.records_max <= 0 or params.max_bytes <= 0:
            return self.try_complete()
        if self._is_cancelled or self._fetched or not self._is_live(name):
            return False
        led = key if isinstance(key, LedSharePartition) and key.is_current else None
        fetched = self._acquire(name, min(params.max_bytes, BYTES_MAX), params.records_max, led=led)
        if fetched is not None:
            self._fetched = [fetched]
        return fetched is not None and self.force_complete()

    def on_complete(self) -> None:
        """Respond with the acquired records."""
        if not self._is_cancelled:
            self._respond(self._fetched or self.acquire())

    def acquire(self) -> list[ShareFetched]:
        """Acquire records of the partitions in order; return those with records or an error."""
        params = self._params
        found: list[ShareFetched] = []
        bytes_left, records_left = params.max_bytes, params.records_max
        for name in self._live_names():
            if records_left <= 0 or bytes_left <= 0:
                break
            is_first = records_left == params.records_max
            fetched = self._acquire(name, min(bytes_left, BYTES_MAX), records_left, is_first=is_first)
            if fetched is None:
                continue
            found.append(fetched)
            if fetched.is_suspect:
                break
            bytes_left -= fetched.records.size
            records_left -= sum(each.last - each.first + 1 for each in fetched.acquired)
        return found

    def _live_names(self) -> list[PartitionName]:
        """Return the partitions that the session still names, none if it has ended.

        Nobody would give back what a member without a session acquires. Nor would anything end a share
        partition that no session names.
        """
        return [name for name in self._names if self._is_live(name)]

    def _is_live(self, name: PartitionName) -> bool:
        session = self._session
        return name in session.partitions and self._partitions.sessions.is_open(session)

    def _find(self, name: PartitionName) -> tuple[Partition, LedSharePartition]:
        topic_id, index = name
        partition = self._partitions.partition(topic_id.bytes, index)
        key = SharePartitionKey(self._params.group_id, topic_id, index)
        return partition, self._partitions.led(key, partition)

    def _acquire(
        self,
        name: PartitionName,
        max_bytes: int,
        records_max: int,
        rounds: int = _ROUNDS_MAX,
        *,
        is_first: bool = True,
        led: LedSharePartition | None = None,
    ) -> ShareFetched | None:
        """Return what one partition has: records or an error, None for nothing.

        `led` is its share partition, where the caller knows it.
        """
        if led is None:
            try:
                led = self._find(name)[1]
            except ApiError as error:
                return ShareFetched(name, error)
        core, params = led.core, self._params
        if led.error is not None and led.error.code is not ErrorCode.INVALID_REQUEST:
            # A share partition without state yet is not an error: the group has it created now.
            return ShareFetched(name, led.error)
        if core is None:
            return None
        led.refresh(core)
        try:
            found = self._read(led, max_bytes)
        except OffsetOutOfRangeError:
            return None
        except LOG_ERRORS as error:
            return ShareFetched(name, ApiError(error.code, str(error)))
        if found is None:
            return None
        offset, data = found
        batches: list[tuple[BatchHeader, int]] = []
        fetched: Iterable[FetchedBatch] = fetched_batches(offset, data, read_headers(data.records, batches))
        now_ms = self._partitions.monotonic_ms()
        try:
            if core.limits.looks_into_batches:
                fetched = examined_batches(
                    led, list(fetched), batches, data.records, now_ms, self._partitions.time_ms()
                )
            acquired = core.acquire(
                params.member_id,
                offset,
                fetched,
                now_ms,
                records_max=records_max,
                batch_size=params.batch_size,
                is_strict=params.is_strict,
                is_first=is_first,
            )
        except RecordsError as error:
            assert not batches, "what is acquired is answered"
            return ShareFetched(name, ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)))
        if core.limits.looks_into_batches:
            led.facts.keep(lambda first, last: core.first_unknown(first, last) is not None)
            led.arm()
        if not acquired:
            has_passed = core.next_fetch_offset(now_ms) not in (offset, None)
            if not (has_passed and rounds):
                return None
            return self._acquire(name, max_bytes, records_max, rounds - 1, is_first=is_first, led=led)
        led.arm()
        return ShareFetched(
            name,
            records=_part(data.records, batches, acquired),
            acquired=acquired,
            is_suspect=acquired[0].deliveries > core.limits.suspect_count,
        )

    def _has_bytes(self) -> bool:
        """Return whether the partitions together have the minimum bytes of the request."""
        size = 0
        for name in self._live_names():
            try:
                _, led = self._find(name)
                if led.core is None:
                    continue
                found = self._read(led, self._params.min_bytes)
            except ApiError:
                return True
            except LOG_ERRORS:
                continue
            size += 0 if found is None else found[1].records.size
        return size >= self._params.min_bytes

    def _read(self, led: LedSharePartition, max_bytes: int) -> tuple[int, FetchDataInfo] | None:
        """Return the first offset that may be acquired and what the log has from there; None for nothing."""
        core, log = led.core, led.partition.log
        assert core is not None, f"{led.key} has no state yet"
        offset = core.next_fetch_offset(self._partitions.monotonic_ms())
        if offset is None or offset >= log.high_watermark:
            return None
        isolation = FetchIsolation.HIGH_WATERMARK
        if self._partitions.settings.reads_committed(led.key.group_id):
            isolation = FetchIsolation.TXN_COMMITTED
        data = log.read(offset, max_bytes, isolation)
        return (offset, data) if data.records.size else None


def read_headers(records: FileSlice, batches: list[tuple[BatchHeader, int]]) -> Iterator[BatchHeader]:
    """Yield the headers of the first `BATCHES_MAX` whole batches; add them to `batches`, with their places.

    It stops before what cannot be read: the next fetch begins there.

    Raises:
        RecordsError, OSError: the first batch cannot be read.
    """
    position = 0
    while position + HEADER_SIZE <= records.size and len(batches) < BATCHES_MAX:
        try:
            header = read_header(records.read_part(position, HEADER_SIZE))
        except NeedMoreBytes:
            break
        except (RecordsError, OSError):
            if batches:
                break
            raise
        if position + header.size > records.size and batches:
            break
        batches.append((header, position))
        yield header
        position += header.size


def fetched_batches(
    offset: int, data: FetchDataInfo, headers: Iterable[BatchHeader]
) -> Iterator[FetchedBatch]:
    """Yield the offsets of batches that were read from an offset on.

    Consumers get nothing of control batches, aborted ones, and those of which compaction has left the header
    only. A message of format 0 or 1 may wrap others, and then has the offset of the last one.
    """
    aborted = deque(sorted(data.aborted_transactions or (), key=lambda each: each.first_offset))
    open_ids: set[int] = set()
    for header in headers:
        while aborted and aborted[0].first_offset <= header.last_offset:
            open_ids.add(aborted.popleft().producer_id)
        is_skipped = header.is_control or not header.record_count
        if header.is_control:
            open_ids.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in open_ids:
            is_skipped = True
        first = header.base_offset if header.magic == MAGIC else min(offset, header.base_offset)
        yield FetchedBatch(first, header.last_offset, is_skipped)
        offset = header.next_offset


def examined_batches(
    led: LedSharePartition,
    fetched: Sequence[FetchedBatch],
    batches: Sequence[tuple[BatchHeader, int]],
    records: FileSlice,
    now_ms: int,
    clock_ms: int,
) -> list[FetchedBatch]:
    """Return batches with the times and keys of records, up to the first batch that is still being read.

    `now_ms` is the time of the share partition's deadlines, `clock_ms` that of timestamps.
    """
    core = led.core
    assert core is not None, f"{led.key} has no state yet"
    limits = core.limits
    found: list[FetchedBatch] = []
    for each, (header, position) in zip(fetched, batches, strict=True):
        first = None if each.is_skipped else core.first_unknown(each.first, each.last)
        if first is None:
            found.append(each)
            continue
        due_ms = header.max_timestamp + limits.delay_ms if limits.delay_ms else 0
        # A timestamp may be in any future, and would hold up the partition until then.
        if clock_ms < due_ms <= clock_ms + limits.delay_ms + WAIT_MAX_MS:
            found.append(each._replace(due_ms=now_ms + due_ms - clock_ms))
            break
        last, facts = each.last, RecordFacts()
        if limits.has_times or limits.has_key_order:
            last = min(last, first + BATCH_OFFSETS_MAX - 1)
            batch = FileSlice(records.file, records.position + position, header.size)
            read = led.facts.of(header, batch, first, last, has_keys=limits.has_key_order)
            if read is None:
                break
            facts = read
        late = tuple(
            (offset, now_ms + min(time_ms - clock_ms, WAIT_MAX_MS))
            for offset, time_ms in facts.times
            if limits.has_times and time_ms > clock_ms
        )
        found.append(each._replace(last=last, late=late, keys=facts.keys))
        if last < each.last:
            break
    return found


def _part(
    records: FileSlice, batches: Sequence[tuple[BatchHeader, int]], acquired: Sequence[AcquiredRange]
) -> FileSlice:
    """Return the batches from the first to the last that has acquired records.

    A message that wraps others begins before its offset, so only where batches end counts.
    """
    first, last = acquired[0].first, acquired[-1].last
    begin = next(position for header, position in batches if header.last_offset >= first)
    header, position = next(each for each in batches if each[0].last_offset >= last)
    return FileSlice(
        records.file, records.position + begin, min(position + header.size, records.size) - begin
    )
