"""Shows what a pipeline makes of the newest records of its topics: without Spark, and nothing is written."""

from collections.abc import Mapping, Sequence

from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.pipelines.direct.range_records import ReadMeter, read_range
from kalda.pipelines.engine.planner import TopicPlan, plan_topic_pipeline
from kalda.pipelines.engine.source_settings import ANSWER_MS_MAX, quick_discovery
from kalda.pipelines.engine.trial import Trial, TrialError, try_ranges
from kalda.pipelines.spec.model import PipelineFile, PipelineSpec
from kalda.records.columnar_fields import WantedFields
from kalda.spark.source.data_loss import DataLossError
from kalda.spark.source.options import SourceOptions, parse_stream_options
from kalda.spark.source.plan import OffsetRange
from kalda.spark.worker import close_readers

Tail = Sequence[tuple[int, int]]
"""Timestamp and offset of the last records of a partition, in their order."""


def preview_pipeline(spec: PipelineSpec, file: PipelineFile, count: int) -> Trial:
    """Process the newest `count` records of the topics that a pipeline reads.

    Raises:
        PipelineFileError: the file is wrong.
        TrialError: a topic does not exist, or a step fails for all records.
        ClientError: the cluster could not be read.
    """
    plan = plan_topic_pipeline(spec, file)
    options = {"kafka.default.api.timeout.ms": ANSWER_MS_MAX, **plan.options}
    source = parse_stream_options(options)
    try:
        return try_ranges(plan, source, _newest_ranges(plan, source, count))
    except DataLossError as error:
        raise TrialError(f"{spec.name}: {error}") from error
    finally:
        close_readers()


def newest_starts(tails: Mapping[TopicPartition, Tail], count: int) -> dict[TopicPartition, int]:
    """Return the start offsets at which reading gives the newest records of all partitions.

    Example: with the tails (timestamp, offset) [(1, 7), (5, 8)] and [(3, 20), (4, 21)], the newest three
    records begin at the offsets 8 and 20.
    """
    left = {partition: list(tail) for partition, tail in tails.items() if tail}
    starts: dict[TopicPartition, int] = {}
    for _ in range(min(count, sum(map(len, left.values())))):
        newest = max(left, key=lambda each: left[each][-1])
        starts[newest] = left[newest].pop()[1]
        if not left[newest]:
            del left[newest]
    return starts


def _newest_ranges(plan: TopicPlan, source: SourceOptions, count: int) -> list[OffsetRange]:
    discovery = quick_discovery(plan.options)
    try:
        found = discovery.find_partitions()
        missing = [each for each in found.missing_topics if each != plan.spec.retry_topic]
        if missing:
            raise TrialError(f"{plan.spec.name}: topic {', '.join(missing)} does not exist")
        partitions = [each for each in found.partitions if each.topic != plan.spec.retry_topic]
        firsts, ends = discovery.beginning_offsets(partitions), discovery.end_offsets(partitions)
    finally:
        discovery.close()

    def part(partition: TopicPartition, start: int) -> OffsetRange:
        topic_id = found.topic_ids.get(partition.topic, ZERO_UUID)
        return OffsetRange(partition, start, ends[partition], topic_id=topic_id)

    # A transaction of one record has two offsets.
    windows = [part(each, max(firsts[each], ends[each] - 2 * count)) for each in partitions]
    tails = {each.topic_partition: _tail(source, each, count) for each in windows if each.offset_count > 0}
    return [part(each, start) for each, start in sorted(newest_starts(tails, count).items())]


def _tail(source: SourceOptions, window: OffsetRange, count: int) -> Tail:
    last: list[tuple[int, int]] = []
    wanted = WantedFields(keys=False, values=False, headers=False)
    for each in read_range(source, window, wanted, ReadMeter()):
        last += zip(each.timestamps_ms.to_pylist(), each.offsets.to_pylist(), strict=True)
    return last[-count:]
