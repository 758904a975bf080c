"""Reads the last decision of a sink, which tasks and drivers follow."""

from kalda.spark.sink.decisions import Decision
from kalda.spark.sink.options import SinkOptions
from kalda.spark.sink.state_topic import COMMITS, StateTopic


def read_decision(options: SinkOptions, scope: str) -> Decision | None:
    """Return the last decision of a sink, None before the first.

    Raises:
        ClientError: the topic could not be read or created.
        StateFormatError: the record is not one of this version.
    """
    value = StateTopic(COMMITS, scope, dict(options.producer)).read(scope)
    return None if value is None else Decision.decode(value)
