"""What a stream takes: what messages expect, ids, limits; the texts are nats-server's."""

import pytest

from kalda.nats.headers import encode_headers
from kalda.nats.jetstream.api_errors import JetStreamError
from kalda.nats.jetstream.publishing import Accepted, Duplicate, MessageIds, check_message
from kalda.nats.jetstream.shared_limits import SharedLimit
from kalda.nats.jetstream.stream_config import StreamConfig
from kalda.nats.jetstream.stream_index import StreamIndex

CONFIG = StreamConfig(name="S", subjects=("a.*",))


def check(
    headers: dict[str, str], config: StreamConfig = CONFIG, subject: bytes = b"a.1", payload: bytes = b"x"
) -> Accepted | Duplicate:
    index, ids = StreamIndex(), MessageIds(SharedLimit(1 << 30, 1))
    index.append(1, b"a.1", 50, 0)
    index.append(2, b"a.2", 50, 0)
    ids.add(b"id2", 2, 0)
    ids.last = b"id2"
    block = encode_headers(headers.items()) if headers else b""
    return check_message(config, index, ids, subject, block, payload)


def config(**values: object) -> StreamConfig:
    return StreamConfig.parse({"name": "S", "subjects": ["a.*"], **values})


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"Nats-Expected-Stream": "T"}, "expected stream does not match"),
        ({"Nats-Expected-Last-Sequence": "1"}, "wrong last sequence: 2"),
        ({"Nats-Expected-Last-Sequence": "junk"}, "wrong last sequence: 2"),
        ({"Nats-Expected-Last-Subject-Sequence": "2"}, "wrong last sequence: 1"),
        ({"Nats-Expected-Last-Msg-Id": "id1"}, "wrong last msg ID: id2"),
        ({"Nats-Rollup": "sub"}, "rollup not permitted"),
    ],
)
def test_what_a_message_expects_must_hold(headers: dict[str, str], text: str) -> None:
    with pytest.raises(JetStreamError, match=text):
        check(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Nats-Expected-Stream": "S", "Nats-Expected-Last-Sequence": "2"},
        {"Nats-Expected-Last-Subject-Sequence": "1", "Nats-Expected-Last-Msg-Id": "id2"},
        {"Nats-Msg-Id": "id3"},
    ],
)
def test_a_message_whose_expectations_hold_is_taken(headers: dict[str, str]) -> None:
    assert isinstance(check(headers), Accepted)


def test_an_id_that_was_there_is_a_duplicate() -> None:
    assert Duplicate(2) == check({"Nats-Msg-Id": "id2", "Nats-Expected-Last-Sequence": "9"})


def test_ids_are_forgotten_after_the_window() -> None:
    ids = MessageIds(SharedLimit(1 << 30, 1))
    ids.add(b"a", 1, 100)
    ids.add(b"b", 2, 200)
    ids.forget(200)
    assert (None, 2, 1) == (ids.find(b"a"), ids.find(b"b"), len(ids))


def test_ids_are_forgotten_some_at_a_time_and_found_no_more_at_once() -> None:
    ids = MessageIds(SharedLimit(1 << 30, 1))
    for number in range(20_000):
        ids.add(b"%d" % number, number, 100)
    ids.forget(200)
    assert 10_000 < len(ids) < 20_000
    assert ids.find(b"19999") is None
    ids.add(b"19999", 20_000, 300)
    for _ in range(4):
        ids.forget(200)
    assert (1, 20_000) == (len(ids), ids.find(b"19999"))


def test_ids_before_the_window_are_not_remembered() -> None:
    """A stream of millions of messages with ids is read when it is opened."""
    ids = MessageIds(SharedLimit(1 << 30, 1))
    ids.forget(200)
    ids.add(b"old", 1, 100)
    assert 0 == len(ids)


def test_a_long_id_takes_as_little_memory_as_a_short_one() -> None:
    ids = MessageIds(SharedLimit(1 << 30, 1))
    ids.add(bytes(900_000), 1, 0)
    assert 1 == ids.find(bytes(900_000))
    assert ids.find(bytes(900_001)) is None
    assert 100 > max(map(len, ids._found))


@pytest.mark.parametrize("subject", [b"a.\xff", b"a.*", b"a.>"])
def test_subjects_that_no_key_of_a_record_is_are_refused(subject: bytes) -> None:
    """After a restart the message would have another subject; a client in Python ends at bytes of no text."""
    with pytest.raises(JetStreamError, match="bad request"):
        check({}, subject=subject)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"max_msgs": 2}, "maximum messages exceeded"),
        ({"max_bytes": 110}, "maximum bytes exceeded"),
        ({"max_msgs_per_subject": 1, "discard_new_per_subject": True}, "maximum messages per subject"),
    ],
)
def test_a_full_stream_refuses_new_messages_if_it_discards_them(values: dict[str, object], text: str) -> None:
    with pytest.raises(JetStreamError, match=text):
        check({}, config(discard="new", **values))


def test_a_message_may_be_too_large() -> None:
    with pytest.raises(JetStreamError, match="message size exceeds maximum allowed"):
        check({}, config(max_msg_size=3), payload=b"four")


@pytest.mark.parametrize("block", [b"junk", b"NATS/1.0\r\nno colon\r\n\r\n", b"NATS/1.0 503\r\n\r\n"])
def test_malformed_headers_are_refused(block: bytes) -> None:
    with pytest.raises(JetStreamError, match="bad request"):
        check_message(CONFIG, StreamIndex(), MessageIds(SharedLimit(1 << 30, 1)), b"a.1", block, b"")


def test_streams_share_the_ids_that_are_remembered() -> None:
    limit = SharedLimit(100, 2)
    ids, others = MessageIds(limit), MessageIds(limit)
    for number in range(100):
        ids.add(b"%d" % number, number + 1, 0)
    assert (33, 34, None) == (len(ids), ids.find(b"33") or 34, ids.find(b"99"))
    with pytest.raises(JetStreamError, match="insufficient resources"):
        check_message(CONFIG, StreamIndex(), ids, b"a.1", b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n", b"")
    others.add(b"1", 1, 0)
    assert 1 == others.find(b"1")
    ids.close()
    ids.add(b"1", 1, 0)
    assert 1 == limit.used


@pytest.mark.parametrize(
    ("name", "code"),
    [("Nats-TTL", 10166), ("Nats-Incr", 10168), ("Nats-Batch-Id", 10174), ("Nats-Schedule", 10188)],
)
def test_what_would_be_kept_without_what_it_asks_for_is_refused(name: str, code: int) -> None:
    """A message with a time to live stayed for ever."""
    with pytest.raises(JetStreamError, match="disabled") as found:
        check({name: "1"})
    assert (400, code) == (found.value.code, found.value.err_code)
