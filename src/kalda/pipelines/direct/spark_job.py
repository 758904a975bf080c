"""Runs the ranges of a batch as tasks of Spark and returns their results to the driver.

Spark schedules, retries and places the tasks; a task's input is one range and its output one result, so no
record crosses to the JVM. The ranges travel in the tasks themselves (an RDD of them), not through a query:
that saves planning, and one of the two Python workers that a query over a Python source would use.

The order and the number of the ranges are those given, because the part of a range names its files and
transactions.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.direct.range_job import RangeJob, RangeResult
from kalda.spark.source.plan import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger: Final = logging.getLogger(__name__)

_Part = tuple[int, OffsetRange]
_ResultT = TypeVar("_ResultT")
_ResultT_co = TypeVar("_ResultT_co", covariant=True)


class Job(Protocol[_ResultT_co]):
    """What is done with each range of a batch; picklable."""

    @property
    def batch_id(self) -> int:
        """The number of the batch."""
        ...

    def run(self, offset_range: OffsetRange, part: int) -> _ResultT_co:
        """Process one range; `part` is its number in the batch."""
        ...


def run_ranges(spark: "SparkSession", job: Job[_ResultT], ranges: Sequence[OffsetRange]) -> list[_ResultT]:
    """Run the job on each range, as one Spark job with a task for each; blocks until all have ended.

    Raises:
        PySparkError: a task failed more often than `spark.task.maxFailures`; the message has its traceback.
    """
    if not ranges:
        return []
    context = spark.sparkContext
    parts: list[_Part] = list(enumerate(ranges))
    context.setLocalProperty("callSite.short", f"kalda direct batch {job.batch_id}")
    results = context.parallelize(parts, len(parts)).mapPartitions(_Task(job)).collect()
    results.sort(key=lambda each: each[0])
    assert [index for index, _ in results] == list(range(len(parts))), "a range has no result, or two"
    return [result for _, result in results]


def account_of(job: RangeJob, results: Sequence[RangeResult]) -> BatchAccount:
    """Return the account of the batch from those of its ranges."""
    return BatchAccount.of_parts(job.query_id, job.batch_id, (each.account for each in results))


class _Task(Generic[_ResultT]):
    """What Spark pickles: the job, called with the parts of one task."""

    def __init__(self, job: Job[_ResultT]) -> None:
        self._job: Final = job

    def __call__(self, parts: Iterable[_Part]) -> Iterator[tuple[int, _ResultT]]:
        for index, offset_range in parts:
            yield index, self._job.run(offset_range, index)
