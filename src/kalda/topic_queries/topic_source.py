"""Reads ranges of topics for queries by `poll_arrow`, with a consumer for each scan."""

import threading
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Final, Self

import numpy as np
import pyarrow as pa

from kalda.clients.consumer.consumer import Consumer
from kalda.common.types import TopicPartition

_POLL_S: Final = 0.1
"""How long a poll waits before positions are looked at; also the longest delay of Ctrl-C."""

_ROWS_MAX: Final = 50_000
"""Rows of one batch: enough for DuckDB, which works on 2,048 at a time, and little memory."""


class ClusterSource:
    """The port `TopicSource` on a cluster.

    DuckDB calls it from threads of its own, some scans at the same time.

    Args:
        settings: The settings of consumers, with Kafka's dotted names.
        ranges: By topic, the offsets that queries may see; the others see all that is there at first.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        ranges: Mapping[str, Mapping[TopicPartition, range]] | None = None,
    ) -> None:
        self._settings: Final = dict(settings)
        self._lookups: Final = Consumer.from_config(self._settings)
        self._lock: Final = threading.Lock()
        """A consumer is for one thread at a time."""
        self._ranges: Final[dict[str, Mapping[TopicPartition, range]]] = dict(ranges or {})
        self._is_stopped = False
        self.read_count = 0
        """The records that were read."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lookups.close()

    def stop(self) -> None:
        """End the reads under way; it is called when nobody needs their records any more."""
        self._is_stopped = True

    def topics(self) -> set[str]:
        """Return the names of all topics that this client may see."""
        with self._lock:
            return set(self._lookups.topics())

    def ranges(self, topic: str) -> Mapping[TopicPartition, range]:
        """Return the offsets of each partition; see `TopicSource.ranges`. The first call finds the end."""
        with self._lock:
            found = self._ranges.get(topic)
            if found is None:
                partitions = [each.topic_partition for each in self._lookups.partitions_for(topic)]
                starts = self._lookups.beginning_offsets(partitions)
                ends = self._lookups.end_offsets(partitions)
                found = self._ranges[topic] = {each: range(starts[each], ends[each]) for each in partitions}
            return found

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | None]:
        """Return the first offset at or after each time; see `TopicSource.offsets_for_times`."""
        with self._lock:
            found = self._lookups.offsets_for_times(times_ms)
        return {each: None if at is None else at.offset for each, at in found.items()}

    def read(self, ranges: Mapping[TopicPartition, range]) -> Iterator[pa.RecordBatch]:
        """Yield the records of ranges of one topic; see `TopicSource.read`."""
        if not ranges:
            return
        ends = np.zeros(max(each.partition for each in ranges) + 1, np.int64)
        for partition, offsets in ranges.items():
            ends[partition.partition] = offsets.stop
        remaining = dict(ranges)
        with Consumer.from_config(self._settings) as consumer:
            consumer.assign(ranges)
            for partition, offsets in ranges.items():
                consumer.seek(partition, offsets.start)
            while remaining and not self._is_stopped:
                batch = consumer.poll_arrow(_POLL_S, max_records=_ROWS_MAX)
                looked_at = set(remaining)
                if batch is not None:
                    numbers = batch["partition"].to_numpy()
                    is_inside = batch["offset"].to_numpy() < ends[numbers]
                    rows = batch if is_inside.all() else batch.filter(pa.array(is_inside))
                    self.read_count += rows.num_rows
                    if rows.num_rows:
                        yield rows
                    # A position costs a call to the consumer's thread: those of other partitions stand still.
                    looked_at = {each for each in remaining if each.partition in set(np.unique(numbers))}
                done = {each for each in looked_at if consumer.position(each) >= remaining[each].stop}
                if done:
                    consumer.pause(done)
                    remaining = {each: offsets for each, offsets in remaining.items() if each not in done}
