"""Stands for the reader of a stream whose options are refused.

Spark 4.3 does not show an error that `streamReader` itself raises: it closes the reader that it did not get,
and that failure takes the place of the error. So the error is raised when Spark first uses the reader.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from kalda.spark.source.offsets import SparkOffset
from kalda.spark.source.one_line_errors import one_line_errors
from kalda.spark.source.option_values import OptionError

if TYPE_CHECKING:
    import pyarrow as pa


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the error of the options from every call."""

    def __init__(self, error: OptionError) -> None:
        self._error: Final = error

    def initialOffset(self) -> SparkOffset:  # noqa: N802  # the API's name
        """Raise the error."""
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # the API's name
        """Raise the error."""
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # the API's name
        """Raise the error."""
        self._refuse()

    def latestOffset(self, start: SparkOffset, limit: ReadLimit) -> SparkOffset:  # noqa: N802  # the API's name
        """Raise the error."""
        self._refuse()

    def partitions(self, start: SparkOffset, end: SparkOffset) -> Sequence[InputPartition]:
        """Raise the error."""
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Raise the error."""
        self._refuse()

    @one_line_errors
    def _refuse(self) -> NoReturn:
        raise self._error
