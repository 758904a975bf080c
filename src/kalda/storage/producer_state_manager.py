"""Decides for one log which batch of a producer may follow, which is a duplicate and what is unstable.

The state is a function of the log's batches: appends update it, and after a crash the batches since the last
snapshot are replayed. Checks run before the write and updates after it, so a failed write changes nothing.

Clients get the answers of Kafka 3.9: a producer that is not in the state may begin with any sequence number,
because its state may have expired. UNKNOWN_PRODUCER_ID has one use of ours: a transaction that begins with
sequence numbers of an ended one (ADR 14).
"""

import contextlib
import logging
import os
from bisect import insort
from collections.abc import Callable, Iterable
from enum import Enum
from heapq import nsmallest
from typing import Final, NamedTuple

from kalda.common.log_limiter import LogLimiter
from kalda.common.types import TopicPartition
from kalda.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    PRODUCER_EPOCH_MAX,
    BatchHeader,
    Buffer,
    read_header,
)
from kalda.records.control import ControlRecordType, EndTransactionMarker
from kalda.records.errors import RecordsError
from kalda.runtime.error_text import error_text
from kalda.runtime.filesystem import FileSystem
from kalda.storage.errors import (
    CorruptSnapshotError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    NewerFormatError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
    UnknownProducerIdError,
)
from kalda.storage.file_names import PRODUCER_SNAPSHOT_SUFFIX, offset_file_name
from kalda.storage.producer_snapshot import format_snapshot, parse_snapshot
from kalda.storage.producer_state_entry import (
    NO_TRANSACTION,
    BatchMetadata,
    ProducerStateEntry,
    is_next_sequence,
)
from kalda.storage.transaction_index import AbortedTransaction

logger: Final = logging.getLogger(__name__)

_limiter: Final = LogLimiter(logger)

PRODUCERS_MAX: Final = 50_000
"""Producers of one log. A client may use any producer id, with one batch of 70 bytes for each; each takes
0.7 KB of memory for a day, and a snapshot of so many holds the event loop for 20 ms."""

_REMOVED_AT_ONCE: Final = PRODUCERS_MAX // 16


class AppendOrigin(Enum):
    """The source of an append, which decides what is checked."""

    CLIENT = "client"
    # The group or transaction coordinator: no sequence numbers, epochs are checked.
    COORDINATOR = "coordinator"
    # The transaction coordinator, where each end raises the epoch: a marker's is above that of the records.
    RAISED_EPOCH = "raised epoch"


class CompletedTransaction(NamedTuple):
    """A transaction whose marker is in the log."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class VerificationGuard:
    """Held by a batch while the coordinator verifies its transaction (KIP-890)."""

    __slots__ = ("waiting_count",)

    def __init__(self) -> None:
        self.waiting_count = 0


class ProducerStateManager:
    """The producers of one log, its open transactions and its snapshots."""

    __slots__ = (
        "_directory",
        "_file_system",
        "_ongoing",
        "_snapshots",
        "_topic_partition",
        "_unreplicated",
        "_verifications",
        "end_offset",
        "expiration_ms",
        "producers",
        "snapshot_offset",
    )

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        topic_partition: TopicPartition,
        snapshots: list[int],
        expiration_ms: int,
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self._topic_partition = topic_partition
        # Offsets of the snapshot files, ascending.
        self._snapshots = sorted(snapshots)
        # First offset of each open transaction -> its producer; ascending, like the log.
        self._ongoing: dict[int, int] = {}
        # First and last offset of each ended transaction whose marker is not below the high watermark.
        self._unreplicated: list[tuple[int, int]] = []
        # Producers whose transaction the coordinator is verifying. Not derived from the log.
        self._verifications: dict[int, VerificationGuard] = {}
        self.expiration_ms = expiration_ms
        self.producers: dict[int, ProducerStateEntry] = {}
        # The state covers the batches below this offset.
        self.end_offset = 0
        # The offset of the last snapshot that was taken or loaded.
        self.snapshot_offset = 0

    @property
    def snapshots(self) -> tuple[int, ...]:
        """Offsets of the snapshot files."""
        return tuple(self._snapshots)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open or ended above the high watermark."""
        ongoing = next(iter(self._ongoing)) if self._ongoing else None
        if not self._unreplicated:
            return ongoing
        unreplicated = self._unreplicated[0][0]
        return unreplicated if ongoing is None or unreplicated < ongoing else ongoing

    @property
    def is_empty(self) -> bool:
        """Whether the state has no producer and no transaction."""
        return not self.producers and not self._unreplicated

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return whether the producer has an open transaction in this epoch."""
        entry = self.producers.get(producer_id)
        return (
            entry is not None
            and entry.current_transaction_first_offset != NO_TRANSACTION
            and entry.producer_epoch == epoch
        )

    def is_retry(self, records: Buffer) -> bool:
        """Return whether a batch is one of its producer's last five, which the producer retries."""
        with contextlib.suppress(RecordsError):
            return self.has_batch(read_header(records))
        return False

    def has_batch(self, header: BatchHeader) -> bool:
        """Return whether a batch is one of the last five that its producer wrote."""
        entry = self.producers.get(header.producer_id)
        return (
            entry is not None
            and entry.find_duplicate(header.producer_epoch, header.base_sequence, header.last_sequence)
            is not None
        )

    def begin_verification(self, producer_id: int) -> "VerificationGuard":
        """Return a guard for a verification; a marker of the producer that is written meanwhile voids it."""
        guard = self._verifications.get(producer_id)
        if guard is None:
            guard = self._verifications[producer_id] = VerificationGuard()
        guard.waiting_count += 1
        return guard

    def is_being_verified(self, producer_id: int, guard: "VerificationGuard") -> bool:
        """Return whether the guard is valid: no transaction of the producer ended since it was returned."""
        return self._verifications.get(producer_id) is guard

    def end_verification(self, producer_id: int, guard: "VerificationGuard") -> None:
        """Release a guard, once for each `begin_verification`."""
        guard.waiting_count -= 1
        if not guard.waiting_count and self._verifications.get(producer_id) is guard:
            del self._verifications[producer_id]

    def check_append(self, header: BatchHeader, origin: AppendOrigin) -> BatchMetadata | None:
        """Check a data batch before the write; return the first copy if it is a duplicate.

        Raises:
            InvalidProducerEpochError: the epoch is below the last one seen.
            UnknownProducerIdError: a transaction begins with sequence numbers of an ended one.
            OutOfOrderSequenceError: the first sequence number does not follow the last one.
            InvalidTxnStateError: the producer has an open transaction and the batch is not part of it.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return None
        epoch, sequence = header.producer_epoch, header.base_sequence
        if origin is AppendOrigin.CLIENT:
            batches = entry.batches
            if (
                epoch != entry.producer_epoch
                or not batches
                or not is_next_sequence(batches[-1].last_sequence, sequence)
            ):
                duplicate = entry.find_duplicate(epoch, sequence, header.last_sequence)
                if duplicate is not None:
                    return duplicate
                self._check_epoch(entry, epoch)
                if header.is_transactional:
                    self._check_is_new(entry, epoch, sequence)
                self._check_sequence(entry, epoch, sequence)
        else:
            self._check_epoch(entry, epoch)
        if entry.current_transaction_first_offset != NO_TRANSACTION and not header.is_transactional:
            raise InvalidTxnStateError(
                f"producer {header.producer_id} has a transaction open in {self._topic_partition} since "
                f"offset {entry.current_transaction_first_offset}; it wrote outside of it"
            )
        return None

    def check_marker(self, header: BatchHeader, marker: EndTransactionMarker, origin: AppendOrigin) -> None:
        """Check a transaction marker before it is written.

        Raises:
            InvalidProducerEpochError: the epoch is below the last one seen; where the end of the transaction
                raised it, it is not above the epoch of the open transaction.
            TransactionCoordinatorFencedError: the coordinator's epoch is below the last one seen.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return
        self._check_epoch(entry, header.producer_epoch)
        if origin is AppendOrigin.RAISED_EPOCH:
            self._check_raised_epoch(entry, header.producer_epoch)
        if entry.coordinator_epoch > marker.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                f"marker for producer {header.producer_id} in {self._topic_partition} has coordinator epoch "
                f"{marker.coordinator_epoch}, the last one was {entry.coordinator_epoch}"
            )

    def add_batch(self, header: BatchHeader, first_offset: int, last_offset: int) -> None:
        """Update the state with a data batch written at these offsets."""
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if entry is None:
            if len(self.producers) >= PRODUCERS_MAX:
                self._remove_longest_idle()
            entry = self.producers[producer_id] = ProducerStateEntry(producer_id)
        entry.add_batch(
            header.producer_epoch,
            header.last_sequence,
            last_offset,
            last_offset - first_offset,
            header.max_timestamp,
        )
        if header.is_transactional and entry.current_transaction_first_offset == NO_TRANSACTION:
            entry.current_transaction_first_offset = first_offset
            self._ongoing[first_offset] = producer_id

    def add_marker(
        self, header: BatchHeader, marker: EndTransactionMarker, offset: int
    ) -> CompletedTransaction | None:
        """Update the state with a marker written at `offset`; return the transaction that it ended, if any.

        The caller writes an aborted transaction to the transaction index and then calls `complete`.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            entry = self.producers[header.producer_id] = ProducerStateEntry(header.producer_id)
        self._verifications.pop(header.producer_id, None)
        first_offset = entry.current_transaction_first_offset
        entry.set_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.current_transaction_first_offset = NO_TRANSACTION
        entry.last_timestamp = header.max_timestamp
        if first_offset == NO_TRANSACTION:
            return None
        is_aborted = marker.control_type is ControlRecordType.ABORT
        return CompletedTransaction(header.producer_id, first_offset, offset, is_aborted)

    def aborted_transaction(self, completed: CompletedTransaction) -> AbortedTransaction:
        """Return the transaction index entry, with the last stable offset after the transaction ended."""
        others = (
            first for first, producer_id in self._ongoing.items() if producer_id != completed.producer_id
        )
        last_stable_offset = next(others, completed.last_offset + 1)
        return AbortedTransaction(
            completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset
        )

    def complete(self, completed: CompletedTransaction) -> None:
        """Mark a transaction as ended; it stays unstable until the high watermark passes its marker."""
        self._ongoing.pop(completed.first_offset, None)
        insort(self._unreplicated, (completed.first_offset, completed.last_offset))

    def on_high_watermark(self, high_watermark: int) -> None:
        """Drop ended transactions whose markers are replicated."""
        if self._unreplicated:
            self._unreplicated = [ended for ended in self._unreplicated if ended[1] >= high_watermark]

    def remove_expired(self, now_ms: int) -> int:
        """Remove producers that were idle for `producer.id.expiration.ms`; return how many."""
        expired = [entry.producer_id for entry in self.producers.values() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self.producers[producer_id]
        return len(expired)

    def _remove_longest_idle(self) -> None:
        """Remove producers before they expire, those whose last batch is furthest behind.

        Such a producer may write on with any sequence number, as if it had expired.
        """
        idle = (e for e in self.producers.values() if e.current_transaction_first_offset == NO_TRANSACTION)
        removed = nsmallest(_REMOVED_AT_ONCE, idle, key=lambda entry: entry.last_data_offset)
        for entry in removed:
            del self.producers[entry.producer_id]
        _limiter.log(
            logging.WARNING,
            "%s has %d producers; %d of them, which have not written for longest, are forgotten before "
            "`producer.id.expiration.ms` is over",
            self._topic_partition,
            PRODUCERS_MAX,
            len(removed),
            source=str(self._topic_partition),
        )

    def take_snapshot(self) -> str | None:
        """Write a snapshot at `end_offset` unless there is one; return its path, for a later sync.

        Raises:
            OSError: nothing was written.
        """
        if self.end_offset <= self.snapshot_offset:
            return None
        path = self._snapshot_path(self.end_offset)
        self._file_system.replace(path, format_snapshot(self.producers.values()), sync=False)
        if self.end_offset not in self._snapshots:
            insort(self._snapshots, self.end_offset)
        self.snapshot_offset = self.end_offset
        return path

    def relocate(self, directory: str, snapshots: Iterable[int]) -> None:
        """Note that the log is now in a directory with these snapshot files; the next one is always written.

        The producers stay: they include some whose batches retention has deleted.
        """
        self._directory = directory
        self._snapshots = sorted(snapshots)
        self.snapshot_offset = 0

    def truncate_and_load(self, first_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Load the last snapshot in [first_offset, log_end_offset]; remove snapshots outside.

        `first_offset` is the first segment's base, not the log start offset: a producer may retry any batch
        that is still on disk. The caller replays the batches from `end_offset` on. State that is already at
        `log_end_offset` stays.
        """
        self._keep_snapshots(lambda offset: first_offset <= offset <= log_end_offset)
        if log_end_offset == self.end_offset:
            return
        self._clear()
        while self._snapshots:
            offset = self._snapshots[-1]
            try:
                entries = parse_snapshot(self._file_system.read(self._snapshot_path(offset)))
            except NewerFormatError as error:
                raise error.at(self._snapshot_path(offset)) from None
            except (OSError, CorruptSnapshotError) as error:
                logger.warning(
                    "%s: producer snapshot %d dropped: %s", self._topic_partition, offset, error_text(error)
                )
                self._keep_snapshots(offset.__ne__)
                continue
            for entry in entries:
                if not self._is_expired(entry, now_ms):
                    self._load(entry)
            self.end_offset = self.snapshot_offset = offset
            return
        self.end_offset = self.snapshot_offset = first_offset

    def rewind(self, first_offset: int, offset: int, now_ms: int) -> None:
        """Load the last snapshot in [first_offset, offset], although the state is that of a later offset.

        Appends that wait for a verification stay registered. The caller replays the batches from `end_offset`
        on.
        """
        verifications = self._verifications
        self.end_offset = -1
        self.truncate_and_load(first_offset, offset, now_ms)
        self._verifications = verifications

    def reset(self, offset: int) -> None:
        """Clear the state and the snapshots, as for an empty log at `offset`."""
        self._clear()
        self._keep_snapshots(lambda _: False)
        self.snapshot_offset = 0
        self.end_offset = offset

    def know_snapshots(self, offsets: Iterable[int]) -> None:
        """Add snapshot files that were left out when this state was created."""
        self._snapshots = sorted({*self._snapshots, *offsets})

    def remove_stray_snapshots(self, base_offsets: set[int]) -> None:
        """Remove the snapshots of no segment, except the last one above the last segment's base.

        A clean shutdown leaves that one.
        """
        newest = max((offset for offset in self._snapshots if offset not in base_offsets), default=None)
        if newest is not None and base_offsets and newest < max(base_offsets):
            newest = None
        self._keep_snapshots(lambda offset: offset in base_offsets or offset == newest)

    def remove_snapshots_of(self, base_offsets: list[int]) -> None:
        """Remove the snapshots of deleted segments."""
        gone = set(base_offsets)
        self._keep_snapshots(lambda offset: offset not in gone)

    def check_invariants(self, log_end_offset: int, high_watermark: int) -> None:
        """Assert that the state covers the log up to its end, and that open transactions are indexed."""
        end = self.end_offset
        assert end == log_end_offset, f"producer state ends at {end}, the log at {log_end_offset}"
        snapshots, newest = self._snapshots, self.snapshot_offset
        if snapshots:
            assert snapshots == sorted(snapshots), f"snapshots do not ascend: {snapshots}"
            newest = max(newest, snapshots[-1])
        assert newest <= end, f"producer snapshot {newest} above the log end offset {end}"
        open_in_entries = {}
        for entry in self.producers.values():
            batches, first = entry.batches, entry.current_transaction_first_offset
            assert not batches or batches[-1].last_offset < end, (
                f"producer {entry.producer_id} wrote {entry.last_data_offset}, the log ends at {end}"
            )
            if first != NO_TRANSACTION:
                open_in_entries[first] = entry.producer_id
        assert self._ongoing == open_in_entries, f"ongoing {self._ongoing}, producers have {open_in_entries}"
        for _, last in self._unreplicated:
            assert high_watermark <= last < end, f"marker {last} outside [{high_watermark}, {end})"
        unstable = None
        if self._ongoing or self._unreplicated:
            unstable = min([*self._ongoing, *(first for first, _ in self._unreplicated)])
        assert self.first_unstable_offset == unstable, f"{self.first_unstable_offset} is not {unstable}"

    def _check_epoch(self, entry: ProducerStateEntry, epoch: int) -> None:
        if epoch < entry.producer_epoch:
            raise InvalidProducerEpochError(
                f"producer {entry.producer_id} wrote to {self._topic_partition} with epoch {epoch}, "
                f"the last one was {entry.producer_epoch}"
            )

    def _check_raised_epoch(self, entry: ProducerStateEntry, epoch: int) -> None:
        """Refuse a late marker of the previous transaction, which would end the open one (KIP-1228).

        A marker that is written again finds no open transaction. The highest epoch is not raised.
        """
        is_open = entry.current_transaction_first_offset != NO_TRANSACTION
        if is_open and epoch == entry.producer_epoch < PRODUCER_EPOCH_MAX:
            raise InvalidProducerEpochError(
                f"marker for producer {entry.producer_id} in {self._topic_partition} has epoch {epoch}, "
                f"which is that of the open transaction; the end of a transaction raises it"
            )

    def _check_is_new(self, entry: ProducerStateEntry, epoch: int, first_sequence: int) -> None:
        """Check that a transaction does not begin with sequence numbers of an ended one.

        librdkafka reuses them after an abort if a batch was refused to it and yet appended. With this error
        it aborts and raises its epoch; OUT_OF_ORDER_SEQUENCE_NUMBER would be fatal to the producer.
        """
        if (
            epoch == entry.producer_epoch
            and entry.coordinator_epoch >= 0
            and entry.current_transaction_first_offset == NO_TRANSACTION
            and first_sequence <= entry.last_sequence
            and not is_next_sequence(entry.last_sequence, first_sequence)
        ):
            raise UnknownProducerIdError(
                f"producer {entry.producer_id} began a transaction in {self._topic_partition} with sequence "
                f"{first_sequence}, but {entry.last_sequence} was in one that ended; it needs a new epoch"
            )

    def _check_sequence(self, entry: ProducerStateEntry, epoch: int, first_sequence: int) -> None:
        if epoch != entry.producer_epoch:
            if first_sequence != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
                raise OutOfOrderSequenceError(
                    f"producer {entry.producer_id} began epoch {epoch} in {self._topic_partition} with "
                    f"sequence {first_sequence}; expected 0"
                )
            return
        last_sequence = entry.last_sequence if entry.batches else NO_SEQUENCE
        if entry.producer_epoch != NO_PRODUCER_EPOCH and not is_next_sequence(last_sequence, first_sequence):
            raise OutOfOrderSequenceError(
                f"producer {entry.producer_id} wrote sequence {first_sequence} to {self._topic_partition}, "
                f"the last one was {last_sequence}"
            )

    def _is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        return (
            entry.current_transaction_first_offset == NO_TRANSACTION
            and now_ms - entry.last_timestamp >= self.expiration_ms
        )

    def _load(self, entry: ProducerStateEntry) -> None:
        self.producers[entry.producer_id] = entry
        if entry.current_transaction_first_offset != NO_TRANSACTION:
            self._ongoing[entry.current_transaction_first_offset] = entry.producer_id
            self._ongoing = dict(sorted(self._ongoing.items()))

    def _clear(self) -> None:
        self.producers = {}
        self._ongoing = {}
        self._unreplicated = []
        self._verifications = {}

    def _snapshot_path(self, offset: int) -> str:
        return os.path.join(self._directory, offset_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX))

    def _keep_snapshots(self, is_kept: Callable[[int], bool]) -> None:
        kept = []
        for offset in self._snapshots:
            if is_kept(offset):
                kept.append(offset)
            else:
                self._file_system.remove(self._snapshot_path(offset))
        self._snapshots = kept
