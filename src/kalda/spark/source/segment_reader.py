"""Reads a range of a partition from the leader's segment files, under leases of the broker.

It does everything that a fetch does but the transfer: offsets, bounds of visibility and aborted transactions
come with the lease. After any doubt it stops, and the caller fetches from the position that it returns.

A lease is released whatever ends the reading, and no batch is handed out that was not checked to be the
broker's. The lease is checked once more at the end: a range whose offsets were cut off the log meanwhile
fails, so that Spark runs the task again.
"""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Generator
from typing import Final

from kalda.clients.errors import (
    BrokerResponseError,
    ClientError,
    UnknownTopicOrPartitionError,
    UnsupportedApiError,
)
from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.range_reader.partition_fetch import FetchedRecords
from kalda.clients.range_reader.read_lease import LeasedFile, ReadLease
from kalda.common.errors import ErrorCode
from kalda.common.host_identity import host_id
from kalda.spark.source.mapped_segment import InPlaceError, MappedSegment, Window, open_leased
from kalda.spark.source.options import ReadMode, SourceOptions
from kalda.spark.source.plan import OffsetRange
from kalda.spark.source.read_counters import ReadCounters
from kalda.storage.file_names import (
    LOG_SUFFIX,
    READ_NONCE_FILE,
    parse_offset_file_name,
    partition_directory_name,
)

logger: Final = logging.getLogger(__name__)

RETRY_SECONDS: Final = 60.0
"""How long a process fetches from a leader whose files it could not see before it tries again."""
LEADERS_MAX: Final = 256
"""Leaders that a process remembers in this way; a worker reads few clusters."""
RENEW_AFTER: Final = 0.5
"""The share of a lease's time after which it is extended."""

Part = tuple[int, FetchedRecords]
"""The offset that records were asked for from, and the records."""
_LeaderKey = tuple[str, int]
"""Bootstrap servers and broker id."""


class LeaseBrokenError(ClientError):
    """Records were cut off the log while they were read, as after an unclean election; a new read helps."""

    @property
    def is_retriable(self) -> bool:
        """Always true: the range can be read again, as the log has it now."""
        return True


class NotInPlaceError(ClientError):
    """`readMode=files` was asked for, and the range cannot be read in place."""


class _UnseenLeaders:
    """The leaders whose files this process could not read: why, and when it tries again."""

    def __init__(self) -> None:
        self._known: Final[dict[_LeaderKey, tuple[str, float]]] = {}

    def reason(self, leader: _LeaderKey, now: float) -> str | None:
        """Return why ranges of the leader are fetched for now, or None."""
        reason, until = self._known.get(leader, (None, now))
        if until <= now:
            self._known.pop(leader, None)
            return None
        return reason

    def add(self, leader: _LeaderKey, reason: str, now: float) -> None:
        """Fetch from the leader for `RETRY_SECONDS`."""
        if len(self._known) >= LEADERS_MAX:
            self._known.clear()
        self._known[leader] = (reason, now + RETRY_SECONDS)

    def clear(self) -> None:
        """Try again with the next range."""
        self._known.clear()


unseen_leaders: Final = _UnseenLeaders()
"""One table for each process: whether files can be seen does not depend on the query."""

_LASTING: Final = frozenset({"access_denied", "not_visible", "not_same_files", "unsupported"})
"""Reasons that hold for the leader's other ranges as well."""
_EXPECTED: Final = frozenset({"access_denied", "not_visible", "refused", "unflushed"})
"""Reasons that are no fault: the reader has another host, or came at a bad moment."""


class _Doubt(Exception):  # noqa: N818  # it ends the reading in place, not the reading
    """Why reading in place ends, and the offset from which the caller fetches."""

    def __init__(self, reason: str, message: str, position: int) -> None:
        super().__init__(message)
        self.reason: Final = reason
        self.position: Final = position


def read_in_place(
    reader: LogReader,
    options: SourceOptions,
    offset_range: OffsetRange,
    counters: ReadCounters,
    monotonic: Callable[[], float] = time.monotonic,
) -> Generator[Part, None, int]:
    """Yield batches of the range with the offset that each part is read from; return where to fetch on.

    The position returned is the range's end, or behind it, if all of the range was read. The records of a
    part are valid until the next one is asked for.

    Raises:
        NotInPlaceError: `readMode` is files, and not even the beginning of the range can be read in place.
        LeaseBrokenError: records that were yielded were cut off the log meanwhile.
    """
    position, end = offset_range.start, offset_range.end
    leader = _leader_key(reader, options, offset_range)
    if options.read_mode is ReadMode.AUTO:
        known = unseen_leaders.reason(leader, monotonic())
        if known is not None:
            counters.fallbacks[known] += 1
            return position
    while position < end:
        began_at = position
        try:
            lease = _acquire(reader, offset_range, position)
            position = yield from _LeasedRange(reader, options, lease, end, counters, monotonic).parts()
        except _Doubt as doubt:
            position = doubt.position
            counters.fallbacks[doubt.reason] += 1
            if options.read_mode is ReadMode.FILES and position == offset_range.start:
                raise NotInPlaceError(
                    f"`readMode`=files: offsets {position} to {end - 1} of {offset_range.topic_partition} "
                    f"cannot be read in place: {doubt}; set `readMode`=auto to fetch where that is so"
                ) from doubt
            if doubt.reason == "lease_lost" and position > began_at:
                # The caller paused for longer than the lease lasts; another lease does.
                continue
            if doubt.reason in _LASTING:
                leader = _leader_key(reader, options, offset_range)
                unseen_leaders.add(leader, doubt.reason, monotonic())
            _log(offset_range, doubt)
            return position
    return position


def _acquire(reader: LogReader, offset_range: OffsetRange, start: int) -> ReadLease:
    try:
        return reader.acquire_lease(
            offset_range.topic_partition, start=start, end=offset_range.end, topic_id=offset_range.topic_id
        )
    except UnsupportedApiError as error:
        raise _Doubt("unsupported", str(error), start) from error
    except BrokerResponseError as error:
        is_off = error.code == ErrorCode.POLICY_VIOLATION
        raise _Doubt("unsupported" if is_off else "refused", str(error), start) from error
    except ClientError as error:
        raise _Doubt("refused", str(error), start) from error


class _LeasedRange:
    """The reading of one lease."""

    def __init__(
        self,
        reader: LogReader,
        options: SourceOptions,
        lease: ReadLease,
        end: int,
        counters: ReadCounters,
        monotonic: Callable[[], float],
    ) -> None:
        self._reader: Final = reader
        self._lease: Final = lease
        self._end: Final = min(end, lease.end_offset)
        self._check_crc: Final = options.client.check_crcs
        self._counters: Final = counters
        self._monotonic: Final = monotonic
        self._position = lease.start_offset
        self._bytes_read = 0
        self._renew_at = monotonic() + self._renew_seconds

    def parts(self) -> Generator[Part, None, int]:
        """Yield the parts; return where the next lease begins. The lease has ended then."""
        lease = self._lease
        try:
            is_same_host = _check_directory(lease)
            for leased in lease.files:
                yield from self._file(leased, is_same_host)
        except InPlaceError as error:
            self._finish(error.reason)
            raise _Doubt(error.reason, str(error), self._position) from error
        except BaseException:
            # The caller stops early, e.g. for the LIMIT of a query.
            with contextlib.suppress(ClientError):
                self._release("")
            raise
        self._finish("")
        # Behind the last batch there may be offsets without records.
        return max(self._position, lease.end_offset)

    def _file(self, leased: LeasedFile, is_same_host: bool) -> Generator[Part, None, None]:
        segment = MappedSegment(leased, is_same_host=is_same_host)
        try:
            while True:
                window = segment.next_window(self._position, self._end, check_crc=self._check_crc)
                if window is None:
                    return
                yield self._position, self._part(window)
                self._position = window.next_offset
                self._renew_if_due()
        finally:
            segment.close()

    def _part(self, window: Window) -> FetchedRecords:
        lease, start, end = self._lease, self._position, window.next_offset
        size = len(window.records)
        self._bytes_read += size
        self._counters.bytes_in_place += size
        return FetchedRecords(
            records=window.records,
            next_offset=end,
            high_watermark=lease.high_watermark,
            last_stable_offset=lease.last_stable_offset,
            log_start_offset=lease.log_start_offset,
            aborted_transactions=tuple(
                (producer_id, first)
                for producer_id, first, last in lease.aborted
                if last >= start and first < end
            ),
            is_checked=self._check_crc,
        )

    @property
    def _renew_seconds(self) -> float:
        return self._lease.lease_ms / 1000 * RENEW_AFTER

    def _renew_if_due(self) -> None:
        if self._monotonic() < self._renew_at:
            return
        try:
            self._reader.renew_lease(self._lease)
        except ClientError as error:
            raise InPlaceError("lease_lost", f"the read lease could not be extended: {error}") from error
        self._renew_at = self._monotonic() + self._renew_seconds

    def _finish(self, reason: str) -> None:
        """Release the lease, and fail if what was yielded is not in the log any more.

        Raises:
            LeaseBrokenError: see there.
            ClientError: the broker does not know the lease, and none returns the end of the log either.
        """
        lease = self._lease
        try:
            has_held = self._release(reason)
        except ClientError:
            if not self._bytes_read:
                return
            if not reason:
                self._counters.fallbacks["lease_lost"] += 1
            # The lease has expired, or the broker restarted: a log that reaches less far was cut.
            try:
                ends = self._reader.end_offsets([lease.topic_partition])
            except UnknownTopicOrPartitionError:
                # The topic was deleted, which takes nothing back that was read before.
                return
            has_held = ends[lease.topic_partition] >= self._position
        if not has_held and self._bytes_read:
            raise LeaseBrokenError(
                f"{lease.topic_partition} was truncated while offsets {lease.start_offset} to "
                f"{self._position - 1} were read in place; the range must be read again"
            )

    def _release(self, reason: str) -> bool:
        return self._reader.release_lease(self._lease, bytes_read=self._bytes_read, fallback_reason=reason)


def _check_directory(lease: ReadLease) -> bool:
    """Check that the lease's directory is the broker's; return whether the broker is on this kernel.

    The paths come from the broker, so nothing is opened that is not named like the files of the partition.

    Raises:
        InPlaceError: it is not, or it cannot be seen.
    """
    log_directory, nonce_name = os.path.split(lease.nonce_file)
    directory = os.path.join(log_directory, partition_directory_name(lease.topic_partition))
    if nonce_name != READ_NONCE_FILE or not os.path.isabs(log_directory):
        raise InPlaceError("not_same_files", f"{lease.nonce_file!r} is not the name of a {READ_NONCE_FILE}")
    for leased in lease.files:
        parent, name = os.path.split(leased.path)
        parsed = parse_offset_file_name(name)
        if parent != directory or parsed is None or parsed[1:] != (LOG_SUFFIX, ""):
            raise InPlaceError("not_same_files", f"{leased.path!r} is not a segment in {directory}")
    try:
        with open(open_leased(lease.nonce_file), encoding="ascii") as file:
            nonce = file.read(len(lease.nonce) + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise InPlaceError("not_visible", f"{lease.nonce_file} cannot be read: {error}") from error
    if nonce != lease.nonce:
        raise InPlaceError("not_same_files", f"{lease.nonce_file} is not that of the broker")
    return bool(lease.host_id) and lease.host_id == host_id()


def _leader_key(reader: LogReader, options: SourceOptions, offset_range: OffsetRange) -> _LeaderKey:
    servers = ",".join(options.client.bootstrap_servers)
    return servers, reader.known_leader_id(offset_range.topic_partition)


def _log(offset_range: OffsetRange, doubt: _Doubt) -> None:
    if doubt.reason == "unsupported":
        level = logging.DEBUG
    else:
        level = logging.INFO if doubt.reason in _EXPECTED else logging.WARNING
    logger.log(
        level,
        "%s: fetching from offset %d on instead of reading in place (%s): %s",
        offset_range.topic_partition,
        doubt.position,
        doubt.reason,
        doubt,
    )
