"""The records of a POST in each form of its body, and what wrong bodies get."""

import pytest

from kalda.clients.values import ConsumerRecord
from kalda.common.received_json import loads_received
from kalda.http.gateway.cloud_events import InvalidEventError, binary_headers, structured_event
from kalda.http.gateway.parameters import InvalidParameterError
from kalda.http.gateway.writes.outgoing import (
    NDJSON_TYPES,
    RECORDS_TYPE,
    InvalidBodyError,
    OutgoingRecord,
    read_records,
)
from kalda.records.batch import TimestampType
from kalda.records.record import Header

JSON = {"content-type": "application/json"}
ENVELOPE = {"content-type": RECORDS_TYPE}
STRUCTURED_TYPE = {"content-type": "application/cloudevents+json"}
EVENT = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
STRUCTURED = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":1},"partitionkey":"k"}'


def consumed(value: bytes | None, headers: tuple[Header, ...] = ()) -> "ConsumerRecord[bytes, bytes]":
    return ConsumerRecord("t", 2, 7, 0, TimestampType.CREATE_TIME, b"k", value, headers, 1, 1, None)  # type: ignore[arg-type]  # a tombstone


def test_a_json_body_keeps_its_text() -> None:
    assert [OutgoingRecord(b'{"price": 1.10}')] == read_records(b' {"price": 1.10}\n', JSON, [])


def test_an_array_is_one_record_unless_it_is_split() -> None:
    assert [OutgoingRecord(b"[1, 2]")] == read_records(b"[1, 2]", JSON, [])
    assert [OutgoingRecord(b"1"), OutgoingRecord(b'{"a":2}')] == read_records(
        b'[1, {"a": 2}]', JSON, [("split", "true")]
    )


def test_other_bodies_are_values() -> None:
    assert [OutgoingRecord(b"\xff\x00")] == read_records(b"\xff\x00", {}, [])


def test_each_line_is_a_record() -> None:
    assert [OutgoingRecord(b"1"), OutgoingRecord(b'"a"')] == read_records(
        b'1\r\n\n"a"\n', {"content-type": NDJSON_TYPES[0]}, []
    )


def test_the_query_has_key_headers_partition_and_timestamp() -> None:
    query = [("key", "k"), ("header", "a:b:c"), ("header", "n"), ("partition", "3"), ("timestamp", "9")]

    assert [OutgoingRecord(b"v", b"k", (("a", b"b:c"), ("n", None)), 3, 9)] == read_records(b"v", {}, query)


def test_an_envelope_says_it_for_each_record() -> None:
    body = b"""{"records": [
        {"key": "k", "value": {"a": [1]}, "headers": {"h": "v", "n": null}, "partition": 1, "timestamp": 5},
        {"key_base64": "AA==", "value_base64": "/w==", "headers": [["h", "1"], ["h", {"base64": "AQ=="}]]},
        {"key": {"id": 1}, "text": "t"},
        {"key": "deleted", "value": null},
        {}]}"""

    assert [
        OutgoingRecord(b'{"a":[1]}', b"k", (("h", b"v"), ("n", None)), 1, 5),
        OutgoingRecord(b"\xff", b"\x00", (("h", b"1"), ("h", b"\x01"))),
        OutgoingRecord(b"t", b'{"id":1}'),
        OutgoingRecord(None, b"deleted"),
        OutgoingRecord(None),
    ] == read_records(body, ENVELOPE, [])


@pytest.mark.parametrize(
    ("body", "headers", "message"),
    [
        (b"", JSON, "not JSON"),
        (b"{", JSON, "not JSON"),
        (b"\xff", JSON, "not UTF-8: byte 0"),
        (b"1e999", JSON, "1e999 is not a finite number"),
        (b"NaN", JSON, "NaN is not a finite number"),
        (b'"\\ud800"', JSON, "surrogate"),
        (b"[" * 100_000, JSON, "nested too deeply"),
        (b'{"records": []}', ENVELOPE, "no records"),
        (b'{"records": {}}', ENVELOPE, "is not {"),
        (b'{"records": [], "extra": 1}', ENVELOPE, "is not {"),
        (b'{"records": [1]}', ENVELOPE, r"records\[0\] is not an object"),
        (b'{"records": [{}, {"val": 1}]}', ENVELOPE, r"records\[1\].val is no field"),
        (b'{"records": [{"value": 1, "text": "a"}]}', ENVELOPE, "two values"),
        (b'{"records": [{"key": "a", "key_base64": "AA=="}]}', ENVELOPE, "two keys"),
        (b'{"records": [{"text": 1}]}', ENVELOPE, "text is not a text"),
        (b'{"records": [{"partition": -1}]}', ENVELOPE, "partition is not a whole number"),
        (b'{"records": [{"partition": true}]}', ENVELOPE, "partition is not a whole number"),
        (b'{"records": [{"timestamp": 1.5}]}', ENVELOPE, "timestamp is not a whole number"),
        (b'{"records": [{"headers": 1}]}', ENVELOPE, "neither an object nor an array"),
        (b'{"records": [{"headers": [["a"]]}]}', ENVELOPE, "a header is a name with"),
        (b'{"records": [{"headers": {"a": 1}}]}', ENVELOPE, "a header is a name with"),
        (b"1\n{", {"content-type": NDJSON_TYPES[0]}, "line 2 is not JSON"),
        (b"1", {"content-type": "json;"}, "not a media type"),
        (b"\n".join([b"1"] * 10_001), {"content-type": NDJSON_TYPES[0]}, "at most 10000"),
    ],
)
def test_wrong_bodies_are_named(body: bytes, headers: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidBodyError, match=message):
        read_records(body, headers, [])


@pytest.mark.parametrize(
    "query",
    [[("kee", "k")], [("key", "a"), ("key", "b")], [("key", "a"), ("key_base64", "AA==")],
     [("key_base64", "a")], [("partition", "-1")], [("partition", "1e3")],
     [("timestamp", "tomorrow")], [("split", "yes")], [("header", ":v")]],
)  # fmt: skip
def test_wrong_parameters_of_writes_are_refused(query: list[tuple[str, str]]) -> None:
    with pytest.raises(InvalidParameterError):
        read_records(b"v", {}, query)


def test_split_needs_an_array() -> None:
    with pytest.raises(InvalidBodyError, match="split=true needs"):
        read_records(b"{}", JSON, [("split", "true")])


def test_a_binary_event_becomes_headers() -> None:
    """The Kafka binding's names, with the percent-encoding of HTTP undone and the partition key as key."""
    headers = {**EVENT, "ce-subject": "%C3%BC%20x", "ce-partitionkey": "k", "content-type": "text/plain"}

    (record,) = read_records(b"data", headers, [])

    assert b"data" == record.value
    assert b"k" == record.key
    assert {
        ("ce_specversion", b"1.0"),
        ("ce_id", b"1"),
        ("ce_source", b"/s"),
        ("ce_type", b"t"),
        ("ce_subject", "ü x".encode()),
        ("ce_partitionkey", b"k"),
        ("content-type", b"text/plain"),
    } == set(record.headers)


def test_a_structured_event_stays_whole() -> None:
    (record,) = read_records(STRUCTURED, {"content-type": "application/cloudevents+json; charset=utf-8"}, [])

    assert OutgoingRecord(STRUCTURED, b"k", (("content-type", b"application/cloudevents+json"),)) == record


def test_a_batch_is_one_record_for_each_event() -> None:
    records = read_records(
        b"[" + STRUCTURED + b"," + STRUCTURED + b"]",
        {"content-type": "application/cloudevents-batch+json"},
        [],
    )

    assert [b"k", b"k"] == [record.key for record in records]


@pytest.mark.parametrize(
    ("body", "headers", "message"),
    [
        (b"", {**EVENT, "ce-id": ""}, "id is missing or empty"),
        (b"", {**EVENT, "ce-specversion": "0.3"}, "specversion='0.3' is not supported"),
        (b"", {**EVENT, "ce-Bad_Name": "x"}, "more than a-z and 0-9"),
        (b"", {**EVENT, "ce-x": "%FF"}, "not UTF-8"),
        (b"[]", STRUCTURED_TYPE, "is a JSON object"),
        (b"{}", STRUCTURED_TYPE, "id is missing"),
        (b"{}", {"content-type": "application/cloudevents-batch+json"}, "not a JSON array"),
        (STRUCTURED[:-1] + b',"data_base64":"AA=="}', STRUCTURED_TYPE, "not both"),
        (STRUCTURED[:-1] + b',"x":{}}', STRUCTURED_TYPE, "attribute x is neither"),
    ],
)  # fmt: skip
def test_what_is_no_cloud_event_is_named(body: bytes, headers: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidEventError, match=message):
        read_records(body, headers, [])


def test_events_come_out_as_they_went_in() -> None:
    (binary,) = read_records(
        b'{"a":1}', {**EVENT, "ce-subject": "%C3%BC", "content-type": "application/json"}, []
    )

    event = loads_received(structured_event(consumed(binary.value, binary.headers)))

    assert {
        "specversion": "1.0",
        "id": "1",
        "source": "/s",
        "type": "t",
        "subject": "ü",
        "datacontenttype": "application/json",
        "data": {"a": 1},
    } == event
    assert {**EVENT, "ce-subject": "%C3%BC"} == binary_headers(consumed(binary.value, binary.headers))
    (structured,) = read_records(STRUCTURED, {"content-type": "application/cloudevents+json"}, [])
    assert loads_received(STRUCTURED) == loads_received(
        structured_event(consumed(structured.value, structured.headers))
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [(b"1", {"data": 1}), (b"x", {"data": "x"}), (b"\xff", {"data_base64": "/w=="}), (None, {})],
)
def test_a_plain_record_is_an_event_too(value: bytes | None, expected: dict[str, object]) -> None:
    assert {
        "specversion": "1.0",
        "id": "2:7",
        "source": "/topics/t",
        "type": "kalda.record",
        "partitionkey": "k",
        **expected,
    } == loads_received(structured_event(consumed(value)))
