import pytest

from kalda.spark.sink.options import Delivery, parse_sink_options
from kalda.spark.source.option_values import OptionError

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_defaults_are_those_of_the_connector() -> None:
    """A query of the official connector needs no other option than the format's name."""
    options = parse_sink_options(SERVERS, is_stream=True)
    assert Delivery.AT_LEAST_ONCE is options.delivery
    assert options.topic is None
    assert ("bootstrap.servers", "localhost:9092") in options.producer


def test_names_are_not_case_sensitive_and_producer_settings_lose_their_prefix() -> None:
    """Spark lowers the names of options before Python sees them."""
    given = SERVERS | {"TOPIC": "t", "kafka.compression.type": "zstd", "Delivery": "exactly-once"}
    options = parse_sink_options(given, is_stream=True)
    assert "t" == options.topic
    assert Delivery.EXACTLY_ONCE is options.delivery
    assert ("compression.type", "zstd") in options.producer


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "`kafka.bootstrap.servers` must be set"),
        (SERVERS | {"kafka.key.serializer": "x"}, "`kafka.key.serializer` is not supported"),
        (SERVERS | {"kafka.value.serializer": "x"}, "`kafka.value.serializer` is not supported"),
        (SERVERS | {"kafka.transactional.id": "x"}, "`kafka.transactional.id` is not supported"),
        (SERVERS | {"topic": " "}, "`topic` is empty"),
        (SERVERS | {"includeHeaders": "yes"}, "`includeHeaders`='yes' is neither true nor false"),
        (SERVERS | {"delivery": "once"}, "`delivery`='once' is not one of at-least-once, exactly-once"),
        (SERVERS | {"sinkId": "a/b"}, "`sinkId`='a/b' must be letters"),
        (SERVERS | {"kafka.linger.ms": "soon"}, "linger.ms"),
        (SERVERS | {"delivery": "exactly-once", "kafka.acks": "1"}, "`kafka.acks`=1 excludes"),
        (
            SERVERS | {"delivery": "exactly-once-batch", "kafka.enable.idempotence": "false"},
            "`kafka.enable.idempotence`=false excludes",
        ),
        (
            SERVERS | {"delivery": "exactly-once-batch", "kafka.transaction.timeout.ms": "1000"},
            "`kafka.transaction.timeout.ms` has no meaning",
        ),
        (SERVERS | {"txn.id": "a", "txn.version": "1"}, "are for batch writes"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused(given: dict[str, str], message: str) -> None:
    """Each refusal names the option and the value; a guarantee is never weakened in silence."""
    with pytest.raises(OptionError) as raised:
        parse_sink_options(given, is_stream=True)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"txn.id": "a"}, "must be set together"),
        ({"txn.id": "a/b", "txn.version": "1"}, "without a slash"),
        ({"txn.id": "a", "txn.version": "-1"}, "`txn.version`='-1' is not a whole number"),
        ({"delivery": "exactly-once"}, "needs `txn.id` and `txn.version`"),
    ],
)
def test_a_batch_write_is_recognised_by_txn_id_and_version(given: dict[str, str], message: str) -> None:
    """A batch write has no query id and no batch id of Spark's."""
    with pytest.raises(OptionError) as raised:
        parse_sink_options(SERVERS | given, is_stream=False)
    assert message in str(raised.value)


def test_txn_options_turn_exactly_once_batch_on() -> None:
    """The two options alone say that a repeated write must change nothing."""
    options = parse_sink_options(SERVERS | {"txn.id": "totals", "txn.version": "7"}, is_stream=False)
    assert (Delivery.EXACTLY_ONCE_BATCH, "totals", 7) == (
        options.delivery,
        options.txn_id,
        options.txn_version,
    )
