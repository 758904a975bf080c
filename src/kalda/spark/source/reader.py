"""The readers that Spark drives: one for batch queries, one for streams.

Both are pickled to the executors, where only `read` runs, so their attributes must be plain values. The
driver opens its connections on first use; they are never pickled.

Spark calls the stream reader in this order for each micro-batch: `latestOffset(start)`, Spark logs
the result, `partitions(start, end)`, `read` on the executors, Spark logs the commit. A batch whose commit
was not logged is planned again from the same start and end after a restart.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.spark.source.data_loss import report_data_loss
from kalda.spark.source.discovery import Discovery
from kalda.spark.source.limits import BatchDelay, limit_bytes, limit_offsets
from kalda.spark.source.log_sizes import LogSizes
from kalda.spark.source.offsets import (
    PartitionOffsets,
    SparkOffset,
    anchor_offset,
    from_spark_offset,
    is_anchor,
    to_spark_offset,
    topic_ids_of,
)
from kalda.spark.source.one_line_errors import one_line_errors, one_line_rows
from kalda.spark.source.option_values import OptionError
from kalda.spark.source.options import RowKind, SourceOptions
from kalda.spark.source.plan import ByteLimit, OffsetRange, join_ranges, plan_ranges
from kalda.spark.source.positions import is_fixed_start, starts_at_earliest
from kalda.spark.source.push_down import Bounds, push_filters
from kalda.spark.source.stream_progress import StreamProgress
from kalda.spark.worker import pooled_reader

if TYPE_CHECKING:
    import pyarrow as pa


class RangePartition(InputPartition):
    """What one task reads: one range, or several short ones."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(None)
        self.ranges: Final = ranges


class KaldaBatchReader(DataSourceReader):
    """Reads what lies between two positions when the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options: Final = options
        self._schema: Final = schema

    @one_line_errors
    def partitions(self) -> list[InputPartition]:
        """Resolve the options and cut the work into tasks."""
        # Spark plans in a process that it uses again.
        with (
            pooled_reader(self._options.client) as client,
            closing(Discovery(self._options, client=client)) as discovery,
        ):
            found = discovery.require_partitions()
            partitions = found.partitions
            starts = discovery.starting_offsets(partitions)
            ends = discovery.ending_offsets(partitions)
            for each, start in starts.items():
                if start > ends[each]:
                    raise OptionError(
                        f"the start of {each}, {start}, lies behind its end, {ends[each]}; set offsets or "
                        "times between which there is something to read"
                    )
            starts, ends = self._narrowed(discovery, starts, ends)
            byte_limit = self._byte_limit(discovery, ends)
        open_starts = {each for each in starts if starts_at_earliest(self._options.starting, each)}
        return _plan(self._options, starts, ends, found.topic_ids, open_starts, byte_limit)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Read one range, on an executor."""
        return one_line_rows(_read(self._options, self._schema, partition))

    def _narrowed(
        self, discovery: Discovery, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the starts and ends between which the query can have rows: here, all of them."""
        return starts, ends

    def _byte_limit(self, discovery: Discovery, partitions: Collection[TopicPartition]) -> ByteLimit | None:
        bytes_max = self._options.bytes_per_partition_max
        if bytes_max is None:
            return None
        with closing(LogSizes(self._options.connection, "maxBytesPerPartition")) as sizes:
            return ByteLimit(
                bytes_max,
                sizes.bytes_per_offset(
                    discovery.beginning_offsets(partitions), discovery.end_offsets(partitions)
                ),
            )


class KaldaFilteringReader(KaldaBatchReader):
    """A batch reader that takes filters (`pushdown=per-frame`).

    Spark uses its plan for all scans of a frame, so the user has to ask for it. It is a class of its own
    because Spark refuses every query on a reader with `pushFilters` unless
    `spark.sql.python.filterPushdown.enabled` is true.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # the API's name
        """Take the filters of a query and return those that Spark has to apply; see `push_down`."""
        self._bounds, remaining = push_filters(filters)
        return remaining

    def _narrowed(
        self, discovery: Discovery, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Cut off what the filters exclude; the ends were looked up before the times."""
        bounds = self._bounds
        kept = [each for each in ends if bounds.has_partition(each)]
        ends = {each: min(ends[each], bounds.offset_end) for each in kept}
        starts = {each: max(starts[each], bounds.offset_start) for each in kept}
        if bounds.timestamp_min is not None and bounds.timestamp_min > 0:
            # Without a record of that age, there is none in the range either.
            since = discovery.offsets_since(
                bounds.timestamp_min, (each for each in kept if starts[each] < ends[each])
            )
            starts |= {
                each: max(starts[each], ends[each] if offset is None else offset)
                for each, offset in since.items()
            }
        return starts, ends


class KaldaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream batch by batch; Spark's checkpoint alone keeps its progress."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options: Final = options
        self._schema: Final = schema
        limits = options.trigger
        self._delay: Final = (
            None if limits.offsets_min is None else BatchDelay(limits.offsets_min, limits.delay_ms_max)
        )
        self._discovery: Discovery | None = None
        self._progress: StreamProgress | None = None
        self._sizes: LogSizes | None = None
        self._is_started_here = False
        """Whether this run resolved the start of the query."""
        self._frozen: dict[TopicPartition, int] | None = None
        """Under Trigger.AvailableNow: where each partition ended when the query began."""
        self._available: dict[TopicPartition, int] = {}
        """The ends that the latest call of `latestOffset` saw."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_discovery": None, "_progress": None, "_sizes": None}

    def initialOffset(self) -> SparkOffset:  # noqa: N802  # the API's name
        """Return the symbolic start; see `anchor_offset` for why it is not a real one."""
        return anchor_offset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # the API's name
        """Return a limit that Spark passes to `latestOffset`; a Python source can return only one.

        `latestOffset` applies all limits of the options, unless the trigger lifts them with
        `ReadAllAvailable`.
        """
        limits = self._options.trigger
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        if limits.offsets_min is not None:
            return ReadMinRows(limits.offsets_min)
        return ReadAllAvailable()

    @one_line_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # the API's name
        """Freeze the ends and the set of partitions, so that the query terminates under live producers."""
        found = self._driver.find_partitions()
        self._frozen = self._driver.end_offsets(found.partitions)

    @one_line_errors
    def latestOffset(self, start: SparkOffset, limit: ReadLimit) -> SparkOffset:  # noqa: N802  # the API's name
        """Return where the next batch ends; for the symbolic start, where the query begins.

        The start is what the sink has committed, so it is also what the consumer group gets.
        """
        if is_anchor(start):
            return self._with_topic_ids(self._starting_offsets())
        known, topic_ids = from_spark_offset(start), topic_ids_of(start)
        self._available = self._find_available(known, topic_ids)
        ends = self._limited(known, self._available, limit)
        self._past.commit(known, is_last=self._frozen is not None and ends == known)
        if ends == known and all(topic_ids[each] == self._past.topic_id(each) for each in topic_ids):
            # An offset without ids, as of Spark's own connector, gets them with the next records: to Spark,
            # another text is another batch.
            return start
        return self._with_topic_ids(ends)

    def reportLatestOffset(self) -> SparkOffset | None:  # noqa: N802  # the API's name
        """Return the available end offsets, for the query's progress report."""
        return to_spark_offset(self._available) if self._available else None

    @one_line_errors
    def partitions(self, start: SparkOffset, end: SparkOffset) -> Sequence[InputPartition]:
        """Cut a batch into tasks; the batch that logs where the query begins has none."""
        ends = from_spark_offset(end)
        starts = self._start_of_first(ends) if is_anchor(start) else from_spark_offset(start)
        topic_ids = topic_ids_of(end)
        if not is_anchor(start):
            self._check_resumed(starts, topic_ids_of(start) | topic_ids)
        starts |= self._start_of_new(ends.keys() - starts.keys())
        gone = starts.keys() - ends.keys()
        if gone:
            self._report(f"partitions are gone: {', '.join(str(each) for each in sorted(gone))}")
        for each in sorted(starts.keys() & ends.keys()):
            if ends[each] < starts[each]:
                self._report(f"the end of {each} went back from {starts[each]} to {ends[each]}")
        return _plan(self._options, starts, ends, topic_ids)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Read one range, on an executor."""
        return one_line_rows(_read(self._options, self._schema, partition))

    def stop(self) -> None:
        """Commit the last progress and close the driver's connections."""
        progress, self._progress = self._progress, None
        if progress is not None:
            progress.close()
        discovery, self._discovery = self._discovery, None
        if discovery is not None:
            discovery.close()
        sizes, self._sizes = self._sizes, None
        if sizes is not None:
            sizes.close()

    @property
    def _driver(self) -> Discovery:
        if self._discovery is None:
            self._discovery = Discovery(self._options)
        return self._discovery

    @property
    def _past(self) -> StreamProgress:
        if self._progress is None:
            self._progress = StreamProgress(self._options, self._driver)
        return self._progress

    def _starting_offsets(self) -> dict[TopicPartition, int]:
        found = self._driver.require_partitions()
        partitions = found.partitions
        if self._frozen is not None:
            partitions = tuple(each for each in partitions if each in self._frozen)
        self._past.started(found)
        self._is_started_here = True
        return self._driver.starting_offsets(partitions, self._frozen)

    def _start_of_first(self, ends: PartitionOffsets) -> dict[TopicPartition, int]:
        """Return the starts of batch 0, whose end this source logs as where the query begins.

        Spark's own connector logs the end of a batch with records there. If it planned batch 0 and did not
        finish it, this source has to read that batch. Where the options name a start that cannot move back,
        the end shows which of them it was: this source would have logged that start, or an earlier one.
        """
        if self._is_started_here or not is_fixed_start(self._options.starting):
            return dict(ends)
        there = [each for each in self._driver.find_partitions().partitions if each in ends]
        if set(there) != ends.keys():
            return dict(ends)
        try:
            starts = self._driver.starting_offsets(there, ends)
        except OptionError:
            # No record is as young as the timestamp any more; there was one when the query began.
            return dict(ends)
        return {each: min(starts[each], end) for each, end in ends.items()}

    def _with_topic_ids(self, offsets: PartitionOffsets) -> SparkOffset:
        topics = {each.topic for each in offsets}
        return to_spark_offset(offsets, {topic: self._past.topic_id(topic) for topic in topics})

    def _check_resumed(self, known: PartitionOffsets, topic_ids: Mapping[str, UUID]) -> None:
        if not self._is_started_here:
            self._is_started_here = True
            self._past.resumed(known, topic_ids, self._driver.find_partitions())

    def _find_available(
        self, known: PartitionOffsets, topic_ids: Mapping[str, UUID]
    ) -> dict[TopicPartition, int]:
        found = self._driver.find_partitions()
        self._past.resumed(known, topic_ids, found)
        self._past.check_topics(found.topic_ids)
        for topic in found.missing_topics:
            self._report(f"topic {topic} is gone")
        if self._frozen is None:
            ends = self._driver.end_offsets(found.partitions, known)
            self._past.saw_ends(known, ends)
            return ends
        there = set(found.partitions)
        frozen = {each: end for each, end in self._frozen.items() if each in there}
        self._past.saw_ends(known, frozen)
        # A start resolved after the freeze can lie behind it; that is no loss while the log reaches so far.
        behind = [each for each, end in frozen.items() if end < known.get(each, 0)]
        ends_now = self._driver.end_offsets(behind, known) if behind else {}
        return frozen | {each: min(end, known[each]) for each, end in ends_now.items()}

    def _limited(
        self, known: PartitionOffsets, available: dict[TopicPartition, int], limit: ReadLimit
    ) -> dict[TopicPartition, int]:
        """Return the ends of the next batch; `known` itself for a trigger that is left out."""
        limits = self._options.trigger
        if isinstance(limit, ReadAllAvailable):
            return available
        if self._delay is not None and self._delay.leaves_out(known, available, time.monotonic() * 1000):
            return dict(known)
        ends = available
        offsets_max = limit.max_rows if isinstance(limit, ReadMaxRows) else limits.offsets_max
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else limits.bytes_max
        if offsets_max is not None or bytes_max is not None:
            starts = dict(known) | self._driver.beginning_offsets(ends.keys() - known.keys())
            if offsets_max is not None:
                ends = limit_offsets(offsets_max, starts, ends)
            if bytes_max is not None:
                ends = limit_bytes(bytes_max, starts, ends, self._bytes_per_offset(available))
        return ends

    def _bytes_per_offset(self, available: PartitionOffsets) -> Mapping[TopicPartition, float]:
        if self._sizes is None:
            self._sizes = LogSizes(self._options.connection, "maxBytesPerTrigger")
        return self._sizes.bytes_per_offset(self._driver.beginning_offsets(available), available)

    def _start_of_new(self, new: set[TopicPartition]) -> dict[TopicPartition, int]:
        """Partitions found while a query runs are read from their beginning, whatever it started at."""
        if not new:
            return {}
        there = set(self._driver.find_partitions().partitions)
        starts = self._driver.beginning_offsets(each for each in new if each in there)
        lost = new - starts.keys()
        if lost:
            self._report(f"new partitions are gone: {', '.join(str(each) for each in sorted(lost))}")
        for each, start in starts.items():
            if start > 0:
                self._report(f"new partition {each} begins at {start} instead of 0")
        return starts

    def _report(self, message: str) -> None:
        report_data_loss(message, fail=self._options.fail_on_data_loss)


def _plan(
    options: SourceOptions,
    starts: PartitionOffsets,
    ends: PartitionOffsets,
    topic_ids: Mapping[str, UUID],
    open_starts: Collection[TopicPartition] = (),
    byte_limit: ByteLimit | None = None,
) -> list[InputPartition]:
    ranges = [
        OffsetRange(each, starts[each], ends[each], each in open_starts, topic_ids.get(each.topic, ZERO_UUID))
        for each in sorted(ends.keys() & starts.keys())
    ]
    planned = plan_ranges(
        ranges,
        partitions_min=options.partitions_min,
        records_max=options.records_per_partition_max,
        byte_limit=byte_limit,
    )
    # Who says how long a task shall be gets tasks of that length; and a row of `rows=ranges` is a task.
    is_joined = (
        options.partitions_min is None
        and options.records_per_partition_max is None
        and byte_limit is None
        and options.rows is RowKind.RECORDS
    )
    tasks = join_ranges(planned) if is_joined else [(each,) for each in planned]
    return [RangePartition(each) for each in tasks]


def _read(
    options: SourceOptions, schema: StructType, partition: InputPartition
) -> Iterator["pa.RecordBatch"]:
    # Spark makes one partition of nothing out of an empty plan.
    if not isinstance(partition, RangePartition):
        return iter(())
    # Imported where it is used: the process of a stream's source plans only, and starts in half the time.
    from kalda.spark.source.arrow_rows import range_row
    from kalda.spark.source.range_reader import read_ranges

    if options.rows is RowKind.RANGES:
        return iter([range_row(each) for each in partition.ranges])
    if options.value is None:
        return read_ranges(options, schema, partition.ranges)
    from kalda.spark.source.value_columns import decode_values, raw_schema

    return decode_values(read_ranges(options, raw_schema(schema), partition.ranges), schema, options.value)
