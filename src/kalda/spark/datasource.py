"""The data source `kalda` for PySpark: ``spark.read.format("kalda")``, and likewise streams and writes.

It accepts the options of Spark's own Kafka connector and has the same columns. Spark discovers it through
the package `pyspark_kalda`, so that no registration is needed.
"""

import sys

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from kalda.spark.source.one_line_errors import one_line_errors
from kalda.spark.source.option_values import OptionError
from kalda.spark.source.options import (
    OnBadValue,
    SourceOptions,
    parse_batch_options,
    parse_common_options,
    parse_stream_options,
)
from kalda.spark.source.reader import KaldaBatchReader, KaldaFilteringReader, KaldaStreamReader
from kalda.spark.source.refused_stream import RefusedStreamReader
from kalda.spark.source.schema import check_schema, source_schema
from kalda.spark.worker import STREAM_COMMIT_MODULE, prepare_planner


class KaldaDataSource(DataSource):
    """Topics of a Kafka-compatible cluster as rows."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(…)``."""
        return "kalda"

    @one_line_errors
    def schema(self) -> StructType:
        """Return the columns; options that no kind of query accepts are refused here, before it starts."""
        prepare_planner()
        options = parse_common_options(self.options)
        value, has_error = _value(options)
        return source_schema(
            include_headers=options.include_headers,
            rows=options.rows,
            columns=options.columns,
            value_type=value,
            has_value_error=has_error,
        )

    @one_line_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        prepare_planner()
        options = parse_batch_options(self.options)
        kind = KaldaFilteringReader if options.push_down else KaldaBatchReader
        return kind(options, _checked(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # the API's name
        """Return the reader of a streaming query."""
        prepare_planner()
        try:
            options = parse_stream_options(self.options)
            return KaldaStreamReader(options, _checked(schema, options))
        except OptionError as error:
            return RefusedStreamReader(error)

    @one_line_errors
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query."""
        if overwrite:
            raise OptionError("save mode overwrite is not allowed for topics; use mode append")
        # Imported where it is used, here and below: a process that only reads starts in less time.
        from kalda.spark.sink.options import parse_sink_options
        from kalda.spark.sink.topic_check import check_topic
        from kalda.spark.sink.writers import KaldaBatchWriter

        prepare_planner()
        options = parse_sink_options(self.options, is_stream=False)
        writer = KaldaBatchWriter(options, schema)
        check_topic(options)
        return writer

    @one_line_errors
    def streamWriter(  # noqa: N802  # the API's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the writer of a streaming query; output mode complete appends all rows of each result."""
        from kalda.spark.sink.options import parse_sink_options
        from kalda.spark.sink.topic_check import check_topic
        from kalda.spark.sink.writers import KaldaStreamWriter

        prepare_planner()
        options = parse_sink_options(self.options, is_stream=True)
        writer = KaldaStreamWriter(options, schema)
        # Spark makes a writer for each commit and abort as well, which must not depend on the topic.
        if STREAM_COMMIT_MODULE not in sys.orig_argv:
            check_topic(options)
        return writer


def _checked(schema: StructType, options: SourceOptions) -> StructType:
    value, has_error = _value(options)
    check_schema(
        schema,
        include_headers=options.include_headers,
        rows=options.rows,
        value_type=value,
        has_value_error=has_error,
    )
    return schema


def _value(options: SourceOptions) -> tuple[StructType | None, bool]:
    """Return the type of decoded values, None for bytes, and whether there is a column of their errors."""
    if options.value is None:
        return None, False
    # Imported where it is used: most queries take values as bytes.
    from kalda.spark.source.value_columns import value_type

    return value_type(options.value), options.value.on_error is OnBadValue.NULL
