"""Replays a partition of a compacted topic whose records are written in transactions. Pure.

It decides itself which records are committed, from the markers in the log, instead of asking for
``read_committed``: a foreign transaction that is open in the same partition would hide records behind it, and
a task must see its own last marker. Example, with producers 7 and 8::

    7: key a = 1   8: key b = 5   commit 7   7: key a = 2   abort 7        →  a = 1; b is still open

Records become values in the order of the commits in the log.
"""

from typing import Final

from kalda.records.batch import Buffer, iter_headers, validate
from kalda.records.control import ControlRecordType, read_end_transaction_marker
from kalda.records.record import iter_records


class StateReplay:
    """The committed values of a partition up to an offset."""

    def __init__(self) -> None:
        self.position = 0
        """The offset of the next batch to replay."""
        self.values: Final[dict[bytes, bytes]] = {}
        """The last committed value of each key that was not deleted."""
        self._open: Final[dict[int, list[tuple[bytes, bytes | None]]]] = {}
        """By producer id, what its open transaction has written."""

    def replay(self, records: Buffer) -> None:
        """Replay whole batches in the log's order; those below `position` are skipped.

        Raises:
            RecordsError: a batch is corrupt.
        """
        for at, header in iter_headers(records):
            if header.last_offset < self.position:
                continue
            validate(records, at, header)
            if header.is_control:
                marker = read_end_transaction_marker(records, at, header)
                if marker is not None:
                    self._end(header.producer_id, marker.control_type)
            else:
                written = [
                    (bytes(each.key), None if each.value is None else bytes(each.value))
                    for each in iter_records(records, at, header)
                    if each.key is not None and each.offset >= self.position
                ]
                if header.is_transactional:
                    self._open.setdefault(header.producer_id, []).extend(written)
                else:
                    self._apply(written)
            self.position = header.next_offset

    def _end(self, producer_id: int, control_type: ControlRecordType) -> None:
        written = self._open.pop(producer_id, [])
        if control_type is ControlRecordType.COMMIT:
            self._apply(written)

    def _apply(self, written: list[tuple[bytes, bytes | None]]) -> None:
        for key, value in written:
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value
