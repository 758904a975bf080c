"""Configurations of streams and consumers, and pull requests: hostile JSON gets nats-server's errors."""

import json
import random

import pytest

from kalda.nats.jetstream import fields
from kalda.nats.jetstream.acks import NAK, Acknowledgement, parse_ack
from kalda.nats.jetstream.api_errors import JetStreamError
from kalda.nats.jetstream.consumer_config import ConsumerConfig, check_consumer_name
from kalda.nats.jetstream.flow_control import WINDOW_START, FlowControl
from kalda.nats.jetstream.pull_requests import PullRefusedError, PullRequests, duration, parse_pull
from kalda.nats.jetstream.shared_limits import ClientShares
from kalda.nats.jetstream.stream_config import StreamConfig

STREAM = StreamConfig.parse({"name": "S", "subjects": ["a.>"]})
PULL = ConsumerConfig.parse({"ack_policy": "explicit", "durable_name": "d"}, STREAM)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"1", b'"x"', b"[" * 100_000, b'{"a":"\\ud800"}', b"\xff", b'{"a":1e999}x'],
)
def test_what_is_no_object_is_invalid_json(body: bytes) -> None:
    with pytest.raises(JetStreamError, match="invalid JSON"):
        fields.read_object(body)


VALUES: list[object] = [
    None,
    True,
    0,
    -1,
    5,
    2**70,
    1.5,
    "",
    "x",
    "a.b",
    "a..b",
    [],
    ["x"],
    [1],
    {},
    {"a": 1},
    {"a": "x"},
]


@pytest.mark.parametrize("seed", range(200))
def test_any_configuration_is_read_or_refused(seed: int) -> None:
    choose = random.Random(seed)
    names = [*STREAM.as_json(), "mirror", "sources", "republish", "sealed", "no_ack"]
    sent = {name: choose.choice(VALUES) for name in names if choose.random() < 0.3}
    try:
        config = StreamConfig.parse({"name": "S"} | sent)
    except JetStreamError:
        pass
    else:
        assert config == StreamConfig.parse(json.loads(json.dumps(config.as_json())))
    names = list(ConsumerConfig.__dataclass_fields__)
    sent = {name: choose.choice(VALUES) for name in names if choose.random() < 0.2}
    try:
        consumer = ConsumerConfig.parse(sent, STREAM)
    except JetStreamError:
        return
    assert consumer == ConsumerConfig.parse(json.loads(json.dumps(consumer.as_json())), STREAM)


@pytest.mark.parametrize(
    "sent",
    [
        {"mirror": {"name": "T"}},
        {"sources": [{"name": "T"}]},
        {"republish": {"src": ">", "dest": "x"}},
        {"retention": "workqueue"},
        {"retention": "interest"},
        {"storage": "memory"},
        {"sealed": True},
        {"subject_transform": {"src": "a", "dest": "b"}},
        {"first_seq": 2},
        {"subject_delete_marker_ttl": 1},
        {"consumer_limits": {"max_ack_pending": 1}},
        {"allow_atomic": True},
        {"allow_batched": True},
        {"allow_msg_counter": True},
        {"allow_msg_schedules": True},
    ],
)
def test_what_is_not_served_is_refused(sent: dict[str, object]) -> None:
    with pytest.raises(JetStreamError, match="not supported"):
        StreamConfig.parse({"name": "S", **sent})


@pytest.mark.parametrize("placement", [{}, {"cluster": ""}, {"cluster": "", "tags": []}])
def test_an_empty_placement_asks_for_nothing(placement: dict[str, object]) -> None:
    """NATS's command sends one for an object store."""
    assert "S" == StreamConfig.parse({"name": "S", "placement": placement}).name
    with pytest.raises(JetStreamError, match="placement is not supported"):
        StreamConfig.parse({"name": "S", "placement": {**placement, "cluster": "east"}})


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a/b", "a>", "ä", "x" * 201, "..", "a\n"])
def test_names_that_no_topic_can_have_are_refused(name: str) -> None:
    with pytest.raises(JetStreamError):
        StreamConfig.parse({"name": name})


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a*", "a>", "x" * 201, "a\r\nPING"])
def test_names_that_no_consumer_can_have_are_refused(name: str) -> None:
    with pytest.raises(JetStreamError):
        check_consumer_name(name)


def test_a_compacted_topic_keeps_one_message_of_a_subject() -> None:
    config = StreamConfig.parse({"name": "KV_b", "subjects": ["$KV.b.>"], "max_msgs_per_subject": 1})
    assert "compact" == config.topic_settings(1000)["cleanup.policy"]
    assert "delete" == STREAM.topic_settings(1000)["cleanup.policy"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2020-01-02T03:04:05Z", 1_577_934_245_000_000_000),
        ("2020-01-02T03:04:05.5+01:00", 1_577_930_645_500_000_000),
    ],
)
def test_times_are_read(text: str, expected: int) -> None:
    assert expected == fields.read_time(text)
    assert expected == fields.read_time(fields.time_text(expected))


@pytest.mark.parametrize("body", [b"{bad", b'{"batch":"x"}', b"-3", b"x", b'{"expires":1e9}', b"9" * 50])
def test_malformed_pull_requests_get_a_status(body: bytes) -> None:
    with pytest.raises(PullRefusedError, match="400 Bad Request"):
        parse_pull(body, b"r", PULL, 0.0)


def test_pull_requests_take_turns_and_expire() -> None:
    requests = PullRequests(ClientShares(1 << 30, 1))
    one = parse_pull(b'{"batch":2,"expires":1000000000}', b"one", PULL, 0.0)
    two = parse_pull(b"1", b"two", PULL, 0.0)
    for each in (one, two):
        requests.add(each, PULL)
    assert requests.first() is one
    assert not requests.sent(one, 10, 0.0)
    assert requests.first() is two
    assert requests.sent(two, 10, 0.0)
    assert ([], 1.0) == (requests.expired(0.9), requests.next_due())
    assert [one] == requests.expired(1.0)
    assert 0 == len(requests)


def test_as_many_pull_requests_wait_as_are_allowed() -> None:
    config = ConsumerConfig.parse({"max_waiting": 1}, STREAM)
    requests = PullRequests(ClientShares(1 << 30, 1))
    requests.add(parse_pull(b"", b"r", config, 0.0), config)
    with pytest.raises(PullRefusedError, match="Exceeded MaxWaiting"):
        requests.add(parse_pull(b"", b"r", config, 0.0), config)


@pytest.mark.parametrize(
    ("nanoseconds", "text"), [(10**9, "1s"), (150 * 10**9, "2m30s"), (5 * 10**8, "500ms")]
)
def test_durations_are_written_as_go_does(nanoseconds: int, text: str) -> None:
    assert text == duration(nanoseconds)


def test_acknowledgements_are_read() -> None:
    subject = b"$JS.ACK.S.c.1.7.3.1.0"
    assert Acknowledgement(NAK, 7, 1.5) == parse_ack(subject, b'-NAK {"delay": 1500000000}')
    assert Acknowledgement(NAK, 7, 0.0) == parse_ack(subject, b'-NAK {"delay": "x"}')
    for wrong in (b"$JS.ACK.S.c.1.x.3.1.0", b"$JS.ACK.S.c.7", b"$JS.ACK.S.c.1." + b"9" * 30 + b".3.1.0"):
        assert parse_ack(wrong, b"+ACK") is None


def test_flow_control_stops_until_the_client_answers() -> None:
    flow = FlowControl()
    flow.sent(WINDOW_START // 2)
    assert (True, False) == (flow.asks, flow.is_full)
    flow.asked(b"x")
    flow.sent(WINDOW_START // 2)
    assert (False, True) == (flow.asks, flow.is_full)
    assert not flow.answered(b"y")
    assert flow.answered(b"x")
    assert not flow.is_full


def test_what_clients_of_later_releases_send_without_asking_for_it_is_taken() -> None:
    sent = {"first_seq": 0, "allow_msg_ttl": True, "compression": "none", "consumer_limits": {}}
    assert "S" == StreamConfig.parse({"name": "S", **sent}).name
    # The `nats` command writes the time that is none.
    assert "c" == ConsumerConfig.parse({"name": "c", "pause_until": "0001-01-01T00:00:00Z"}, STREAM).name


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ({"priority_groups": ["a"], "priority_policy": "overflow"}, 10012),
        ({"priority_policy": "pinned_client"}, 10012),
        ({"pause_until": "2030-01-01T00:00:00Z"}, 10012),
        ({"filter_subjects": ["a.1", ""]}, 10139),
        ({"filter_subjects": ["a.1", "a.1"]}, 10138),
        ({"filter_subjects": ["a.1"], "filter_subject": "a.1"}, 10136),
        ({"metadata": {"a": "x" * 131_072}}, 10135),
        ({"metadata": {"a": 1}}, 10025),
        ({"metadata": ["a"]}, 10025),
    ],
)
def test_what_later_releases_refuse_has_their_errors(sent: dict[str, object], code: int) -> None:
    with pytest.raises(JetStreamError) as found:
        ConsumerConfig.parse(sent, STREAM)
    assert code == found.value.err_code


def test_filters_may_overlap_but_not_include_each_other() -> None:
    stream = StreamConfig.parse({"name": "S", "subjects": ["a.>"]})
    config = ConsumerConfig.parse({"filter_subjects": ["a.*.c", "a.b.*"]}, stream)
    assert ["a.*.c", "a.b.*"] == config.as_json()["filter_subjects"]
    with pytest.raises(JetStreamError, match="consumer subject filters cannot overlap"):
        ConsumerConfig.parse({"filter_subjects": ["a.b.*", "a.b.c"]}, stream)


def test_metadata_is_kept_and_may_change() -> None:
    one = StreamConfig.parse({"name": "S", "metadata": {"b": "1", "a": "ä"}})
    two = StreamConfig.parse({"name": "S", "metadata": {"a": "ä", "b": "1"}})
    assert one == two
    assert {"a": "ä", "b": "1"} == one.as_json()["metadata"]
    assert "metadata" not in STREAM.as_json()
    three = StreamConfig.parse({"name": "S", "metadata": {"c": "1"}})
    three.check_update(one)
    assert three != one
    with pytest.raises(JetStreamError, match="stream metadata exceeds maximum size of 131072 bytes"):
        StreamConfig.parse({"name": "S", "metadata": {"a": "x" * 131_072}})
    assert 5 == one.size - StreamConfig.parse({"name": "S"}).size


def test_subjects_of_a_stream_have_as_many_tokens_as_those_of_a_subscription() -> None:
    """64 subjects of 2,000 tokens each took 50 MB of each broker."""
    longest = ".".join("a" * 31) + ".>"
    assert (longest,) == StreamConfig.parse({"name": "S", "subjects": [longest]}).subjects
    with pytest.raises(JetStreamError, match="too many tokens, maximum allowed is 32"):
        StreamConfig.parse({"name": "S", "subjects": [".".join("a" * 32) + ".>"]})


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"description": "x" * 4096}, 1),
        ({"metadata": {"a": "x" * 51_200}}, 11),
        ({"filter_subject": "a.b"}, 1),
        (
            {"filter_subjects": [f"a.{each}{'x' * 4000}" for each in range(10, 64)]},
            1 + 54 * 4004 * 32 // 5120,
        ),
    ],
)
def test_consumers_with_long_texts_count_for_several(sent: dict[str, object], expected: int) -> None:
    assert expected == ConsumerConfig.parse(sent, STREAM).weight
