"""Tracks, batch by batch, which producers are inside an aborted transaction.

A fetch under read_committed returns every batch up to the last stable offset, and beside them the list of
aborted transactions (KIP-98); leaving their batches out is the reader's work.
"""

from collections.abc import Iterable

from kalda.records.batch import BatchHeader, Buffer
from kalda.records.control import ControlRecordType, read_end_transaction_marker


class AbortedTransactions:
    """The aborted transactions of one fetch response.

    A producer is inside from the first offset of one of its aborted transactions to the abort marker. The
    batches must be passed in order, without gaps.
    """

    __slots__ = ("_pending", "_producer_ids")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """Take the response's list of (producer id, first offset)."""
        # Descending by first offset, so that the next transaction to begin is at the list's end.
        self._pending = sorted(aborted, key=lambda transaction: -transaction[1])
        self._producer_ids: set[int] = set()

    def drops(self, buffer: Buffer, position: int, header: BatchHeader) -> bool:
        """Process the next batch; return whether its records belong to an aborted transaction."""
        pending = self._pending
        if not pending and not self._producer_ids:
            return False
        last_offset = header.last_offset
        while pending and pending[-1][1] <= last_offset:
            self._producer_ids.add(pending.pop()[0])
        if header.producer_id not in self._producer_ids:
            return False
        if header.is_control:
            marker = read_end_transaction_marker(buffer, position, header)
            if marker is not None and marker.control_type is ControlRecordType.ABORT:
                self._producer_ids.discard(header.producer_id)
            return False
        return header.is_transactional
