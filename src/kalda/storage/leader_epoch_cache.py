"""Keeps which leader wrote which offsets of a log, in memory and in ``leader-epoch-checkpoint``.

An entry (epoch, start offset) means that the leader of that epoch began at that offset. Followers and clients
use the entries to find where two logs diverge (KIP-101, KIP-279). Both numbers ascend strictly.
"""

import os
from bisect import bisect_right
from itertools import pairwise
from typing import Final

from kalda.runtime.filesystem import FileSystem
from kalda.storage.checkpoints import format_leader_epochs, parse_leader_epochs
from kalda.storage.errors import CorruptCheckpointError, NewerFormatError
from kalda.storage.file_names import LEADER_EPOCH_CHECKPOINT_FILE

UNDEFINED_EPOCH: Final = -1
UNDEFINED_EPOCH_OFFSET: Final = -1


class LeaderEpochFileCache:
    """The entries, in memory and in ``leader-epoch-checkpoint``.

    The file is replaced on each change without a sync; the log's flush calls `sync`. Entries that a power
    failure loses lie above the recovery point, and recovery reads them from the batches again.
    """

    __slots__ = ("_file_system", "_written", "entries", "latest_epoch", "path")

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self._file_system = file_system
        self.path = os.path.join(directory, LEADER_EPOCH_CHECKPOINT_FILE)
        self.entries: tuple[tuple[int, int], ...] = ()
        self._written: tuple[tuple[int, int], ...] = ()
        # Epoch of the last entry in the file, -1 without one; read on every append.
        self.latest_epoch = UNDEFINED_EPOCH

    def load(self) -> None:
        """Read the file; raises `CorruptCheckpointError`, `NewerFormatError`."""
        try:
            entries = parse_leader_epochs(self._file_system.read(self.path))
        except NewerFormatError as error:
            raise error.at(self.path) from None
        if any(left[0] >= right[0] or left[1] > right[1] for left, right in pairwise(entries)):
            raise CorruptCheckpointError(f"{self.path}: leader epochs do not ascend: {entries}")
        self._set(tuple(entries))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add an entry: `epoch` begins at `start_offset`. Assigning the latest epoch again changes nothing.

        Entries that contradict the new one (same or later epoch, same or later offset) are removed: entries
        (1, 10), (2, 20) and `assign(3, 20)` give (1, 10), (3, 20).

        Raises:
            OSError: the file could not be written; the entries are unchanged.
        """
        assert epoch >= 0, f"leader epochs are not negative, got {epoch}"
        assert start_offset >= 0, f"offsets are not negative, got {start_offset}"
        entries = self.entries
        is_written = self.latest_epoch == epoch
        if is_written and entries and entries[-1][0] == epoch and start_offset >= entries[-1][1]:
            return
        self._write(self._with(epoch, start_offset))

    def insert(self, epoch: int, start_offset: int) -> None:
        """Add an entry between those of earlier and later epochs, if it fits there; known epochs stay."""
        index = bisect_right([entry[0] for entry in self.entries], epoch)
        before, after = self.entries[:index], self.entries[index:]
        if before and (before[-1][0] == epoch or before[-1][1] > start_offset):
            return
        if not after or start_offset <= after[0][1]:
            self._write((*before, (epoch, start_offset), *after))

    def assign_unwritten(self, epoch: int, start_offset: int) -> None:
        """Add an entry only in memory, because the disk is full.

        `latest_epoch` stays, so that the first append of the epoch writes the entry before its records.
        """
        self.entries = self._with(epoch, start_offset)

    def forget_unwritten(self) -> None:
        """Drop the entries that `assign_unwritten` added, because another broker leads.

        The leader that follows may have more records of the epoch before. With the entry, the log would give
        them to the epoch of a leader that wrote nothing.
        """
        self.entries = self._written

    def recovered(self, epoch: int, base_offset: int, last_offset: int) -> None:
        """Make the entries agree with a batch of `epoch` that recovery has found in the log.

        The file may be newer than the log: a follower truncates the log and takes records of a later leader,
        a power failure brings back the records from before, and the file has the later leader's entry. With
        that entry the follower would claim the later epoch for records that its leader never had, and no
        fetch would show the difference. So entries of later epochs that begin at or below `last_offset` are
        dropped, and those after them, because what follows in the log is as old.

        Raises:
            OSError: the file could not be written; the entries are unchanged.
        """
        if any(entry[0] > epoch and entry[1] <= last_offset for entry in self.entries):
            self._write(tuple(entry for entry in self.entries if entry[0] <= epoch))
        if epoch > self.latest_epoch:
            self.assign(epoch, base_offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch at or below `epoch`, and where it ends.

        (-1, -1) if unknown. Epochs (1, 10), (3, 30), end 50: epoch 2 gives (1, 30), 3 gives (3, 50), 4 gives
        (-1, -1), 0 gives (0, 10).
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        index = bisect_right([entry[0] for entry in self.entries], epoch)
        if index == len(self.entries):
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        end_offset = self.entries[index][1]
        return (self.entries[index - 1][0] if index else epoch), end_offset

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch that wrote `offset`, or ``None`` below the first entry."""
        index = bisect_right([entry[1] for entry in self.entries], offset) - 1
        return self.entries[index][0] if index >= 0 else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the entries that start at `end_offset` or later."""
        kept = tuple(entry for entry in self.entries if entry[1] < end_offset)
        if kept != self.entries:
            self._write(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Move the entry that covers `start_offset` to begin there; drop the entries before it.

        Entries (1, 10), (2, 20), (3, 30): at 25 they become (2, 25), (3, 30).
        """
        index = bisect_right([entry[1] for entry in self.entries], start_offset) - 1
        if index < 0 or (self.entries[index][1] == start_offset and index == 0):
            return
        self._write(((self.entries[index][0], start_offset), *self.entries[index + 1 :]))

    def clear(self) -> None:
        """Drop all entries."""
        if self.entries:
            self._write(())

    def replace(self, entries: tuple[tuple[int, int], ...]) -> None:
        """Take over the entries of another log with the same records.

        Raises:
            OSError: the file could not be written; the entries are unchanged.
        """
        if entries != self.entries:
            self._write(entries)

    def relocate(self, directory: str) -> None:
        """Note that the log's directory was renamed."""
        self.path = os.path.join(directory, LEADER_EPOCH_CHECKPOINT_FILE)

    def rewrite(self) -> None:
        """Write the unchanged entries to the file again.

        Raises:
            OSError: the file could not be written.
        """
        self._write(self.entries)

    def sync(self) -> None:
        """Sync the file; for the background pool."""
        self._file_system.sync_file(self.path)

    def check_invariants(self, log_end_offset: int) -> None:
        """Assert that epochs and start offsets ascend and lie within the log."""
        entries = self.entries
        for before, after in pairwise(entries):
            assert before[0] < after[0], f"{self.path}: {after} follows {before}"
            assert before[1] <= after[1], f"{self.path}: {after} follows {before}"
        if entries:
            assert entries[-1][1] <= log_end_offset, f"{entries} above log end offset {log_end_offset}"

    def _with(self, epoch: int, start_offset: int) -> tuple[tuple[int, int], ...]:
        kept = list(self.entries)
        while kept and (kept[-1][0] >= epoch or kept[-1][1] >= start_offset):
            kept.pop()
        return (*kept, (epoch, start_offset))

    def _write(self, entries: tuple[tuple[int, int], ...]) -> None:
        self._file_system.replace(self.path, format_leader_epochs(entries), sync=False)
        self._set(entries)

    def _set(self, entries: tuple[tuple[int, int], ...]) -> None:
        self.entries = self._written = entries
        self.latest_epoch = entries[-1][0] if entries else UNDEFINED_EPOCH
