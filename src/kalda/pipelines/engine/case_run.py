"""Runs the tests of pipelines: without Spark, a cluster or a target.

The records of a test are put in the place of those that a task reads; everything behind that is what a run
does. A pipeline that Spark executes cannot be tested so.
"""

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from kalda.common.types import TopicPartition
from kalda.formats import FormatError, FormatSpec, RegistryError, open_decoder, open_encoder
from kalda.formats.decoded import BadValueError, EncodeError
from kalda.pipelines.direct.range_records import ReadMeter
from kalda.pipelines.engine.case_difference import differences_of
from kalda.pipelines.engine.planner import TopicPlan, plan_topic_pipeline
from kalda.pipelines.engine.target_settings import format_spec
from kalda.pipelines.engine.trial import TrialError, try_ranges
from kalda.pipelines.spec.cases import Case, CaseRecord, Plain
from kalda.pipelines.spec.model import PipelineFile, TopicSource, ValueFormat
from kalda.records.columnar import ColumnarBatch
from kalda.records.columnar_fields import HEADERS_TYPE, WantedFields
from kalda.spark.source.options import SourceOptions, parse_stream_options
from kalda.spark.source.plan import OffsetRange

_CREATE_TIME = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The result of a test."""

    case: Case
    differences: tuple[str, ...] = ()
    """Between what it expects and what came out, one a line."""
    error: str | None = None
    """Why the pipeline could not process the records."""

    @property
    def is_passed(self) -> bool:
        """Whether the pipeline made what the test expects."""
        return self.error is None and not self.differences


def run_case(case: Case, file: PipelineFile) -> CaseResult:
    """Run one test.

    Raises:
        PipelineFileError: the pipeline cannot be planned.
    """
    plan = plan_topic_pipeline(case.spec, file)
    if not plan.is_direct:
        return CaseResult(
            case=case,
            error=f"{case.spec.name} cannot be tested, because Spark executes it: {plan.reason}",
        )
    try:
        values = _values(plan, case.records)
        reader = _CaseReader(case.records, values)
        found = try_ranges(plan, parse_stream_options(plan.options), reader.ranges(), reader)
    except TrialError as error:
        return CaseResult(case=case, error=str(error))
    return CaseResult(case=case, differences=tuple(differences_of(case, found)))


def _values(plan: TopicPlan, records: Sequence[CaseRecord]) -> list[bytes | None]:
    """Return the values as they would be in the topic.

    Raises:
        TrialError: a value cannot be written in the pipeline's format.
    """
    assert isinstance(plan.spec.source, TopicSource), plan.spec.kind
    return [
        each.value
        if isinstance(each.value, bytes | None)
        else _encoded(plan.spec.source.value, each.value, number)
        for number, each in enumerate(records, 1)
    ]


def _encoded(value: ValueFormat, content: Plain, number: int) -> bytes:
    text = json.dumps(content, ensure_ascii=False).encode()
    if value.name.endswith("json") or value.name in ("raw", "string"):
        return text
    where = f"the value of record {number} cannot be written as {value.name}"
    if value.name.endswith("-sr"):
        raise TrialError(f"{where} without a schema registry; give its bytes with value_base64")
    try:
        spec = format_spec(value)
        schema = open_decoder(spec).schema()
        if schema is None:
            raise TrialError(f"{where}: only the data shows its columns; give the value as text")
        decoded = open_decoder(FormatSpec("json", schema)).decode(pa.array([text], pa.binary()))
        if decoded.errors:
            raise TrialError(f"{where}: {decoded.errors[0].message}")
        encoded: bytes = open_encoder(spec, schema).encode(decoded.columns)[0].as_py()
    except (FormatError, EncodeError, BadValueError, RegistryError) as error:
        raise TrialError(f"{where}: {error}") from error
    return encoded


class _CaseReader:
    """Reads the records of a test instead of the cluster's."""

    def __init__(self, records: Sequence[CaseRecord], values: Sequence[bytes | None]) -> None:
        self._places: Mapping[TopicPartition, list[int]] = {}
        places: dict[TopicPartition, list[int]] = {}
        for index, each in enumerate(records):
            places.setdefault(TopicPartition(each.topic, each.partition), []).append(index)
        self._records, self._values, self._places = records, values, places

    def ranges(self) -> list[OffsetRange]:
        """Return the ranges of offsets that hold the records."""
        return [
            OffsetRange(place, self._records[indices[0]].offset, self._records[indices[-1]].offset + 1)
            for place, indices in self._places.items()
        ]

    def __call__(
        self, options: SourceOptions, offset_range: OffsetRange, wanted: WantedFields, meter: ReadMeter
    ) -> Generator[ColumnarBatch, None, None]:
        """Yield the records of a partition."""
        indices = self._places[offset_range.topic_partition]
        records = [self._records[index] for index in indices]
        headers = [[{"key": name, "value": value} for name, value in each.headers] for each in records]
        yield ColumnarBatch(
            offsets=pa.array([each.offset for each in records], pa.int64()),
            timestamps_ms=pa.array([each.timestamp_ms for each in records], pa.int64()),
            timestamp_types=pa.array([_CREATE_TIME] * len(records), pa.int32()),
            keys=pa.array([each.key for each in records], pa.binary()),
            values=pa.array([self._values[index] for index in indices], pa.binary()),
            headers=pa.array(headers, HEADERS_TYPE),
            next_offset=offset_range.end,
            consumed_bytes=0,
        )
