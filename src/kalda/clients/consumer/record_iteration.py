"""Hands records out one by one, and takes back those that were not handed out.

Iteration decodes many records at once, so the positions run ahead of the loop. `settle` moves them back to
behind the last record that the loop has got; every method of a consumer that reads or moves positions calls
it first.
"""

from collections.abc import Iterator
from operator import length_hint
from typing import Any, Final

from kalda.clients.consumer.fetch_buffer import Chunk, FetchBuffer
from kalda.clients.consumer.record_decoder import Deserializers
from kalda.clients.values import ConsumerRecord


class RecordIteration:
    """The records that a loop over a consumer is being given."""

    def __init__(self, buffer: FetchBuffer, deserializers: Deserializers) -> None:
        self._buffer: Final = buffer
        self._deserializers: Final = deserializers
        self._chunk: Chunk | None = None
        self._records: list[ConsumerRecord[Any, Any]] = []
        self._iterator: Iterator[ConsumerRecord[Any, Any]] = iter(())

    def next_chunk(self, count: int) -> list[ConsumerRecord[Any, Any]]:
        """Take up to `count` records; they count as handed out as `records` returns them.

        Raises:
            FetchCorruptionError, RecordDeserializationError: the first record cannot be read.
        """
        self.settle()
        self._chunk = self._buffer.take_chunk(count, self._deserializers)
        self._records = [] if self._chunk is None else list(self._chunk.records)
        self._iterator = iter(self._records)
        return self._records

    @property
    def records(self) -> Iterator[ConsumerRecord[Any, Any]]:
        """The records that were not handed out yet; ends early when `settle` takes them back."""
        return self._iterator

    def drop(self) -> None:
        """Drop records not handed out: after a fork, the parent process keeps them."""
        self._chunk = None
        self._records.clear()

    def settle(self) -> None:
        """Move the position behind the last record that was handed out, and keep the others for later."""
        chunk = self._chunk
        if chunk is None:
            return
        remaining = length_hint(self._iterator)
        self._chunk = None
        # Without elements, the iterator ends.
        self._records.clear()
        if remaining:
            self._buffer.put_back(chunk, len(chunk.records) - remaining)
