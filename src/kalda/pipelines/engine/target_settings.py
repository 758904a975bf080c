"""Turns what a pipeline writes into a topic into options of the sink `kalda` and the form of its records.

One place decides them, because the planner checks what the tasks use later.
"""

import pyarrow as pa

from kalda.formats import FormatError, FormatSpec, check_written, open_encoder
from kalda.pipelines.spec.errors import FaultList
from kalda.pipelines.spec.model import Cluster, Place, TopicTarget, ValueFormat
from kalda.pipelines.topic_rows import TopicRowError, TopicRows
from kalda.spark.sink.options import SinkOptions, parse_sink_options
from kalda.spark.source.option_values import OptionError


def format_spec(value: ValueFormat) -> FormatSpec:
    """Return a format of the file as `kalda.formats` takes it."""
    return FormatSpec(value.name, value.schema, None, dict(value.options))


def topic_rows(target: TopicTarget, columns: pa.Schema) -> TopicRows:
    """Return the conversion of rows with these columns to records.

    Raises:
        FormatError: the format cannot be written, or does not fit the columns.
    """
    if target.value is None:
        return TopicRows(target.key)
    return TopicRows(target.key, open_encoder(format_spec(target.value), columns))


def sink_options(target: TopicTarget, cluster: Cluster) -> SinkOptions:
    """Return the options of the sink.

    Raises:
        OptionError: a setting of the cluster or of the target is wrong.
    """
    options = {f"kafka.{name}": value for name, value in {**cluster.properties, **target.options}.items()}
    options |= {"topic": target.topic, "delivery": target.delivery.value}
    return parse_sink_options(options, is_stream=True)


def check_topic_target(
    target: TopicTarget, cluster: Cluster, columns: pa.Schema | None, place: Place, faults: FaultList
) -> None:
    """Add what keeps a pipeline from writing rows of these columns; without columns, less can be checked."""
    place = target.place or place
    try:
        sink_options(target, cluster)
    except OptionError as error:
        faults.add(place, f"to: {error}")
    try:
        if target.value is not None:
            check_written(target.value.name)
        if columns is not None:
            rows = topic_rows(target, columns)
            none = pa.RecordBatch.from_pylist([], schema=columns)
            # An encoder may register its schema with the first rows, so that only the keys are made here.
            rows.keys(none) if target.value is not None else rows.records(none)
    except FormatError as error:
        faults.add(target.value.place or place if target.value is not None else place, str(error))
    except TopicRowError as error:
        faults.add(place, f"to: {error}")
