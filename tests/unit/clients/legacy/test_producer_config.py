"""Properties files of 2012 are understood, and what they cannot mean is refused by name."""

from pathlib import Path

import pytest

from kalda.clients.errors import ClientConfigError
from kalda.clients.legacy import ProducerConfig
from kalda.records.compression import Compression

ZOOKEEPER = {"zk.connect": "127.0.0.1:2181"}


def test_names_of_both_releases_are_one_setting() -> None:
    of_07 = ProducerConfig(
        ZOOKEEPER
        | {"queue.time": "500", "queue.size": 10, "batch.size": "5", "queue.enqueueTimeout.ms": "0"}
        | {"num.retries": 1, "buffer.size": 65536}
    )
    of_08 = ProducerConfig(
        {
            "metadata.broker.list": "a:1,b:2",
            "queue.buffering.max.ms": 500,
            "queue.buffering.max.messages": "10",
            "batch.num.messages": 5,
            "queue.enqueue.timeout.ms": 0,
            "message.send.max.retries": 1,
            "send.buffer.bytes": 65536,
        }
    )
    for each in (of_07, of_08):
        assert (500, 10, 5, 0) == (
            each.queue_buffering_max_ms,
            each.queue_buffering_max_messages,
            each.batch_num_messages,
            each.queue_enqueue_timeout_ms,
        )
        assert (1, 65536) == (each.message_send_max_retries, each.send_buffer_bytes)
    assert ("a:1", "b:2") == of_08.bootstrap_servers


def test_defaults_are_those_of_08() -> None:
    config = ProducerConfig(ZOOKEEPER)
    assert (True, 5_000, 10_000, 200, -1) == (
        config.is_sync,
        config.queue_buffering_max_ms,
        config.queue_buffering_max_messages,
        config.batch_num_messages,
        config.queue_enqueue_timeout_ms,
    )
    assert (0, 10_000, 3, 100, 3) == (
        config.request_required_acks,
        config.request_timeout_ms,
        config.message_send_max_retries,
        config.retry_backoff_ms,
        config.zk_read_num_retries,
    )


def test_keywords_and_files_are_taken_too(tmp_path: Path) -> None:
    file = tmp_path / "producer.properties"
    file.write_text("broker.list=0:localhost:9092\nproducer.type=sync\n#queue.time=\ncompression.codec=0\n")
    config = ProducerConfig(str(file), queue_enqueueTimeout_ms=5, client_id="c")
    assert ("localhost:9092",) == config.bootstrap_servers
    assert (5, "c") == (config.queue_enqueue_timeout_ms, config.client_id)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"zk.conect": "a:1"}, "`zk.conect` is not a setting.*did you mean `zk.connect`"),
        ({"queue.time": 1, "queue.buffering.max.ms": 1}, "`queue.time` and `queue.buffering.max.ms` are one"),
        ({"producer.type": "fast"}, "`producer.type`=fast is not allowed.*sync, async"),
        ({"queue.size": 0}, "`queue.buffering.max.messages`=0 is not allowed.*at least 1"),
        ({"queue.size": 10}, "`batch.num.messages`=200 does not fit.*=10"),
        ({"request.required.acks": 2}, "`request.required.acks`=2.*-1 to 1"),
        ({"compression.codec": "zstd"}, "`compression.codec`=zstd.*none, gzip, snappy, lz4"),
        ({"broker.list": "0:h:1"}, "`zk.connect` and `broker.list` is given; give one"),
        ({"zk.connect": None}, "none is given; give one of zk.connect, broker.list, metadata.broker.list"),
        ({"zk.connect": None, "broker.list": "h:9092"}, "h:9092 is not id:host:port"),
        (
            {"zk.connect": None, "broker.list": "0:h:1", "partitioner.class": "a.B"},
            "`partitioner.class` has no effect with `broker.list`",
        ),
        ({"zk.connect": b"a"}, "`zk.connect`=b'a' is not allowed.*not bytes"),
    ],
)
def test_mistakes_are_named(properties: dict[str, object], message: str) -> None:
    with pytest.raises(ClientConfigError, match=message):
        ProducerConfig(ZOOKEEPER | properties)


def test_codec_applies_to_compressed_topics_only() -> None:
    """An empty list stands for all topics; without a codec nothing is compressed."""
    assert Compression.GZIP is ProducerConfig(ZOOKEEPER, compression_codec=1).codec("t")
    assert Compression.LZ4 is ProducerConfig(ZOOKEEPER, compression_codec="lz4").codec("t")
    some = ProducerConfig(ZOOKEEPER, compression_codec="2", compressed_topics="a,b")
    assert [Compression.SNAPPY, Compression.NONE] == [some.codec("b"), some.codec("c")]
    assert Compression.NONE is ProducerConfig(ZOOKEEPER, compressed_topics=["a"]).codec("a")


def test_response_is_waited_for_at_least_as_long_as_the_broker_may_wait() -> None:
    assert 30_000 == ProducerConfig(ZOOKEEPER).response_timeout_ms
    assert 60_000 == ProducerConfig(ZOOKEEPER, request_timeout_ms=60_000).response_timeout_ms
    assert 2_000 == ProducerConfig(ZOOKEEPER, socket_timeout_ms=2_000).response_timeout_ms


def test_properties_of_handlers_are_text_or_a_mapping() -> None:
    text = ProducerConfig(ZOOKEEPER | {"event.handler.props": "a=1, b = x=y"})
    assert {"a": "1", "b": "x=y"} == text.handler_properties("event.handler.props")
    mapping = ProducerConfig(ZOOKEEPER | {"callback.handler.props": {"a": 1}})
    assert {"a": "1"} == mapping.handler_properties("callback.handler.props")
    assert {} == mapping.handler_properties("event.handler.props")
    with pytest.raises(ClientConfigError, match=r"event.handler.props.*name=value"):
        ProducerConfig(ZOOKEEPER | {"event.handler.props": "a"}).handler_properties("event.handler.props")
