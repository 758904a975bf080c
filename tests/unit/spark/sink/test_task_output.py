import pytest

from kalda.spark.sink.options import parse_sink_options
from kalda.spark.sink.task_output import open_producer
from kalda.spark.source.option_values import OptionError

BASE = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:chooser", "cannot be loaded: No module named 'nowhere'"),
        ("math:nothing", "cannot be loaded: module 'math' has no attribute 'nothing'"),
        ("math:pi", "is neither a function nor a partitioner"),
    ],
)
def test_a_partitioner_that_is_none_is_refused(name: str, message: str) -> None:
    """It would fail with the first record otherwise, with an error from within the producer."""
    options = parse_sink_options(BASE | {"kafka.partitioner.class": name}, is_stream=False)

    with pytest.raises(OptionError, match=message):
        open_producer(options)
