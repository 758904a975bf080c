"""Tracks the transactions that a cleaner meets in a log and decides which markers it may drop.

An aborted transaction's records are dropped at once. Its marker, and its entry in the transaction index, stay
as long as one of its batches was met: readers need both to skip that batch. The marker of a committed
transaction stays until all of its batches are gone, because a reader that starts in the middle needs it.
"""

from collections.abc import Iterable

from kalda.records.control import ControlRecordType, EndTransactionMarker
from kalda.storage.transaction_index import AbortedTransaction


class CleanedTransactionMetadata:
    """The transactions of one walk through a log, updated with each batch in order."""

    __slots__ = ("_committed", "_is_observed", "_ongoing_aborted", "_pending", "retained")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # Descending by first offset, so that the next transaction to begin is at the list's end.
        self._pending = sorted(set(aborted), key=lambda each: (-each.first_offset, -each.last_offset))
        self._ongoing_aborted: dict[int, AbortedTransaction] = {}
        # Producers with a batch inside their ongoing transaction.
        self._is_observed: set[int] = set()
        self._committed: set[int] = set()
        self.retained: list[AbortedTransaction] = []
        """Aborted transactions whose markers stay: entries for the transaction index, in order. The caller
        removes them."""

    def on_data(self, producer_id: int, last_offset: int, is_transactional: bool) -> bool:
        """Process a data batch; return whether it belongs to an aborted transaction."""
        self._begin_up_to(last_offset)
        if not is_transactional:
            return False
        if producer_id in self._ongoing_aborted:
            self._is_observed.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def on_marker(
        self, producer_id: int, last_offset: int, marker: EndTransactionMarker | None, *, is_empty: bool
    ) -> bool:
        """Process a control batch; return whether its transaction allows dropping it.

        An empty batch was cleaned before. `marker` is ``None`` for other control records too, which stay.
        """
        self._begin_up_to(last_offset)
        if marker is None:
            return is_empty
        if marker.control_type is ControlRecordType.COMMIT:
            was_met = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_met
        aborted = self._ongoing_aborted.pop(producer_id, None)
        if aborted is None or producer_id not in self._is_observed:
            return True
        self._is_observed.discard(producer_id)
        self.retained.append(aborted)
        return False

    def _begin_up_to(self, offset: int) -> None:
        pending = self._pending
        while pending and pending[-1].first_offset <= offset:
            aborted = pending.pop()
            # A transaction that ended before this walk began has no marker in it: it would never end here and
            # would drop records that its producer committed later.
            if aborted.last_offset >= offset:
                self._ongoing_aborted.setdefault(aborted.producer_id, aborted)
