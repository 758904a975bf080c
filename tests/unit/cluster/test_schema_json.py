"""The JSON in ZooKeeper: byte for byte what Kafka 3.9 writes, and older versions read."""

import json
import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest

from kalda.cluster import paths, schema
from kalda.cluster.schema import (
    BrokerInfo,
    ListenerEndpoint,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    SchemaError,
    TopicAssignment,
)
from kalda.common.types import ZERO_UUID, TopicPartition

TOPIC_ID = uuid.UUID("868387bd-61de-46e6-a3f6-3c244af2cb23")
PARTITION = TopicPartition("t", 1)


def test_broker_registration_of_version_5() -> None:
    info = BrokerInfo(
        7,
        (
            ListenerEndpoint("INTERNAL", "::1", 9093, "SASL_SSL"),
            ListenerEndpoint("CLIENT", "host", 9092, "PLAINTEXT"),
        ),
        rack="r1",
        timestamp_ms=1_700_000_000_000,
        features=(("transaction.version", 0, 2),),
    )
    data = schema.encode_broker(info)
    assert {
        "version": 5,
        "host": "host",
        "port": 9092,
        "endpoints": ["INTERNAL://[::1]:9093", "CLIENT://host:9092"],
        "jmx_port": -1,
        "timestamp": "1700000000000",
        "rack": "r1",
        "listener_security_protocol_map": {"INTERNAL": "SASL_SSL", "CLIENT": "PLAINTEXT"},
        "features": {"transaction.version": {"min_version": 1, "max_version": 2}},
    } == json.loads(data)
    assert info == schema.decode_broker(7, data)
    assert b": " not in data


def test_only_a_cordoned_broker_says_so_in_its_registration() -> None:
    """Kafka's brokers ignore the field; what they register has none."""
    info = BrokerInfo(1, (ListenerEndpoint("PLAINTEXT", "host", 9093, "PLAINTEXT"),))
    cordoned = replace(info, is_cordoned=True)
    found = [json.loads(schema.encode_broker(each)) for each in (info, cordoned)]
    assert [None, True] == [each.get("cordoned") for each in found]
    assert cordoned == schema.decode_broker(1, schema.encode_broker(cordoned))
    assert info == schema.decode_broker(1, schema.encode_broker(info))


def test_a_broker_of_kalda_is_known_by_its_registration() -> None:
    """The first releases wrote no mark, but features, which Apache Kafka has none of with ZooKeeper."""
    kafka = BrokerInfo(1, (ListenerEndpoint("PLAINTEXT", "host", 9093),))
    first = replace(kafka, features=(("group.version", 0, 1),))
    marked = replace(first, kalda="0.1.0", features=())
    found = [schema.decode_broker(1, schema.encode_broker(each)) for each in (kafka, first, marked)]
    assert [kafka, first, marked] == found
    assert [False, True, True] == [each.is_kalda for each in found]
    assert [None, None, "0.1.0"] == [
        json.loads(schema.encode_broker(each)).get("kalda") for each in (kafka, first, marked)
    ]
    strange = schema.encode_broker(kafka).replace(b'"version":5', b'"version":5,"kalda":1')
    assert kafka == schema.decode_broker(1, strange)


def test_broker_without_plaintext_has_no_address_for_old_clients() -> None:
    data = schema.encode_broker(BrokerInfo(1, (ListenerEndpoint("SSL", "host", 9093, "SSL"),)))
    found = json.loads(data)
    assert (None, -1, False) == (found["host"], found["port"], "rack" in found)


def test_broker_registration_of_an_old_kafka_is_read() -> None:
    """Version 2 knows no listener names: the listener is the security protocol."""
    data = (
        b'{"jmx_port":9999,"timestamp":"1","endpoints":["SSL://h:9093"],"host":"h","version":2,"port":9092}'
    )
    assert BrokerInfo(
        3, (ListenerEndpoint("SSL", "h", 9093, "SSL"),), None, 9999, 1, epoch=8
    ) == schema.decode_broker(3, data, epoch=8)


def test_topic_assignment_of_version_3() -> None:
    assignment = TopicAssignment(
        "orders",
        TOPIC_ID,
        {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 3, 1), adding=(3,), removing=(1,))},
        version=4,
    )
    data = schema.encode_topic(assignment)
    assert (
        b'{"removing_replicas":{"1":[1]},"partitions":{"0":[1,2],"1":[2,3,1]},'
        b'"topic_id":"hoOHvWHeRuaj9jwkSvLLIw","adding_replicas":{"1":[3]},"version":3}'
    ) == data
    assert assignment == schema.decode_topic("orders", data, version=4)


def test_topic_without_an_id_is_read_and_written_back_without_one() -> None:
    """Topics created before Kafka 2.8 have no id until a controller gives them one."""
    data = b'{"version":1,"partitions":{"10":[1],"9":[2]}}'
    assignment = schema.decode_topic("old", data)
    assert ZERO_UUID == assignment.topic_id
    assert [9, 10] == list(assignment.partitions)
    assert "topic_id" not in json.loads(schema.encode_topic(assignment))


def test_partition_state_of_version_1() -> None:
    state = PartitionState(1, 5, (1, 2), 3, version=9)
    data = schema.encode_partition_state(state)
    assert b'{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":5,"isr":[1,2]}' == data
    assert state == schema.decode_partition_state(PARTITION, data, 9)
    recovering = PartitionState(1, 5, (1,), 3, 9, leader_recovering=True)
    data = schema.encode_partition_state(recovering)
    assert 1 == json.loads(data)["leader_recovery_state"]
    assert recovering == schema.decode_partition_state(PARTITION, data, 9)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            schema.encode_controller(3, 1_700_000_000_000),
            b'{"version":2,"brokerid":3,"timestamp":"1700000000000","kraftControllerEpoch":-1}',
        ),
        (schema.encode_controller_epoch(12), b"12"),
        (schema.encode_config({"a": "b"}), b'{"version":1,"config":{"a":"b"}}'),
        (schema.encode_config_change("topics", "t"), b'{"version":2,"entity_path":"topics/t"}'),
        (
            schema.encode_isr_change([TopicPartition("t", 1)]),
            b'{"version":1,"partitions":[{"topic":"t","partition":1}]}',
        ),
        (
            schema.encode_preferred_election([TopicPartition("t", 1)]),
            b'{"version":1,"partitions":[{"topic":"t","partition":1}]}',
        ),
        (
            schema.encode_reassignment({TopicPartition("t", 1): (2, 3)}),
            b'{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[2,3]}]}',
        ),
        (schema.encode_log_dir_event(schema.LogDirEvent(4)), b'{"version":1,"broker":4,"event":1}'),
        (
            schema.encode_log_dir_event(schema.LogDirEvent(4, {"/a": "broken"}, 40)),
            b'{"version":1,"broker":4,"event":1,"kalda":{"broker_epoch":40,"ended_by":{"/a":"broken"}}}',
        ),
        (
            schema.encode_producer_id_block(ProducerIdBlock(1, 1000, 1999)),
            b'{"version":1,"broker":1,"block_start":"1000","block_end":"1999"}',
        ),
        (schema.encode_cluster_id("abc"), b'{"version":"1","id":"abc"}'),
    ],
)
def test_small_znodes_are_written_as_kafka_does(data: bytes, expected: bytes) -> None:
    assert expected == data


def test_small_znodes_are_read_back() -> None:
    partition = TopicPartition("t", 1)
    assert 3 == schema.decode_controller(schema.encode_controller(3, 1))
    assert 12 == schema.decode_controller_epoch(b"12")
    assert {"a": "b"} == schema.decode_config("topics", "t", schema.encode_config({"a": "b"}))
    assert {} == schema.decode_config("topics", "t", b"")
    assert (
        "users",
        "a/clients/b",
    ) == schema.decode_config_change(schema.encode_config_change("users", "a/clients/b"))
    assert (
        "topics",
        "t",
    ) == schema.decode_config_change(b'{"version":1,"entity_type":"topics","entity_name":"t"}')
    assert {partition} == schema.decode_isr_change(schema.encode_isr_change([partition]))
    assert {partition} == schema.decode_preferred_election(schema.encode_preferred_election([partition]))
    assert {partition: (2, 3)} == schema.decode_reassignment(schema.encode_reassignment({partition: (2, 3)}))
    for event in (schema.LogDirEvent(4), schema.LogDirEvent(4, {"/a": "broken"}, 2**40)):
        assert event == schema.decode_log_dir_event(schema.encode_log_dir_event(event))
    block = ProducerIdBlock(1, 1000, 1999)
    assert block == schema.decode_producer_id_block(schema.encode_producer_id_block(block))
    assert "abc" == schema.decode_cluster_id(schema.encode_cluster_id("abc"))


@pytest.mark.parametrize(
    "field",
    [
        b"1",
        b"{}",
        b'{"ended_by":["/a"],"broker_epoch":40}',
        b'{"ended_by":{"/a":1},"broker_epoch":40}',
        b'{"ended_by":{"/a":"broken"},"broker_epoch":"40"}',
    ],
)
def test_a_log_directory_event_counts_though_its_field_has_another_form(field: bytes) -> None:
    """The leaders on the failed disk have to move."""
    data = b'{"version":1,"broker":4,"event":1,"kalda":' + field + b"}"
    assert schema.LogDirEvent(4) == schema.decode_log_dir_event(data)


DECODERS: list[Callable[[bytes], object]] = [
    lambda data: schema.decode_broker(1, data),
    lambda data: schema.decode_topic("t", data),
    lambda data: schema.decode_partition_state(PARTITION, data, 0),
    schema.decode_controller,
    schema.decode_controller_epoch,
    schema.decode_config_change,
    schema.decode_isr_change,
    schema.decode_preferred_election,
    schema.decode_reassignment,
    schema.decode_log_dir_event,
    schema.decode_producer_id_block,
    schema.decode_cluster_id,
]


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"null",
        b"nan",
        b'{"version":2,"endpoints":["nonsense"],"partitions":{"x":[1]},"entity_path":"topics"}',
        b'{"version":2,"endpoints":[1],"partitions":{"0":["a"]},"isr":5,"leader":"1","brokerid":true}',
        b'{"version":3,"endpoints":"x","partitions":{"0":[1]},"topic_id":"short","id":4,"block_start":"x"}',
        b"[" * 100_000,
        "²".encode(),
        b"2147483648",
    ],
)
def test_nonsense_in_a_znode_is_our_error(decode: Callable[[bytes], object], data: bytes) -> None:
    """Operators write znodes by hand: the error must say what is wrong, not be a KeyError of ours."""
    with pytest.raises(SchemaError):
        decode(data)


@pytest.mark.parametrize(
    "partitions",
    [
        '{"0":[]}',
        '{"0":[1,1]}',
        '{"0":[-1]}',
        '{"0":[2147483648]}',
        '{"²":[1]}',
        '{"-1":[1]}',
        '{"00":[1]}',
        '{"2147483648":[1]}',
    ],
)
def test_an_assignment_that_no_broker_could_serve_is_nonsense(partitions: str) -> None:
    """It is left out then; a controller that took it in would fail, and so would every one after it."""
    with pytest.raises(SchemaError, match="topic t"):
        schema.decode_topic("t", f'{{"version":3,"partitions":{partitions}}}'.encode())


@pytest.mark.parametrize("state", ['"leader":4294967296', '"leader_epoch":1e3', '"isr":[2147483648]'])
def test_a_state_that_does_not_fit_the_wire_is_nonsense(state: str) -> None:
    text = '{"leader":1,"leader_epoch":0,"isr":[1],"controller_epoch":1,' + state + "}"
    with pytest.raises(SchemaError, match="the state of partition t-1 should be"):
        schema.decode_partition_state(PARTITION, text.encode(), 0)


def test_znodes_beside_the_brokers_are_not_brokers() -> None:
    assert [9, 10] == paths.numbers(["10", "9", "x", "²", "00", "-1", "", "9999999999", "99999999999"])


def test_paths_are_kafkas() -> None:
    partition = TopicPartition("orders", 3)
    assert "/brokers/topics/orders/partitions/3/state" == paths.partition_state(partition)
    assert "/brokers/topics/orders/partitions/3" == paths.partition(partition)
    assert "/config/brokers/<default>" == paths.config("brokers", paths.DEFAULT_ENTITY)
    assert 12 == paths.sequence_number("config_change_0000000012")
    with pytest.raises(ValueError, match="ten digits"):
        paths.sequence_number("config_change_12")


@pytest.mark.parametrize("text", ['"\\ud800"', '"' + "h" * 40_000 + '"'])
@pytest.mark.parametrize("field", ["endpoints", "rack", "features"])
def test_a_registration_that_no_response_can_carry_is_refused(field: str, text: str) -> None:
    """Every client's metadata names every broker, so that one such broker would end all of them."""
    fields = {
        "endpoints": '["PLAINTEXT://host:1"]',
        "rack": '"r"',
        "features": '{"f":{"min_version":1,"max_version":2}}',
    }
    schema.decode_broker(1, ("{" + ",".join(f'"{n}":{v}' for n, v in fields.items()) + "}").encode())
    fields[field] = {
        "endpoints": f'["PLAINTEXT://{text[1:-1]}:1"]',
        "rack": text,
        "features": f'{{{text}:{{"min_version":1,"max_version":2}}}}',
    }[field]
    with pytest.raises(SchemaError, match="registration of broker 1"):
        schema.decode_broker(1, ("{" + ",".join(f'"{n}":{v}' for n, v in fields.items()) + "}").encode())


def test_settings_with_half_of_a_surrogate_pair_are_refused() -> None:
    for text in (rb"\ud800", "\ud800".encode(errors="surrogatepass")):
        with pytest.raises(SchemaError, match="surrogate"):
            schema.decode_config("topics", "t", b'{"version":1,"config":{"a":"' + text + b'"}}')


def test_a_value_of_a_wrong_type_is_named_however_deep_it_is() -> None:
    for depth in (10, 900, 100_000):
        with pytest.raises(SchemaError):
            schema.decode_config(
                "topics", "t", b'{"version":1,"config":{"a":' + b"[" * depth + b"]" * depth + b"}}"
            )


def raised(data: bytes) -> bytes:
    """Return a znode with the next version after the one that is written."""
    value = json.loads(data)
    value["version"] = type(value["version"])(int(value["version"]) + 1)
    return json.dumps(value).encode()


PARTITIONS = [PARTITION]
WRITTEN: dict[schema.Kind, tuple[bytes, Callable[[bytes], object]]] = {
    schema.Kind.BROKER: (
        schema.encode_broker(BrokerInfo(1, (ListenerEndpoint("PLAINTEXT", "h", 1),))),
        lambda data: schema.decode_broker(1, data),
    ),
    schema.Kind.TOPIC: (
        schema.encode_topic(TopicAssignment("t", TOPIC_ID, {0: ReplicaAssignment((1,))})),
        lambda data: schema.decode_topic("t", data),
    ),
    schema.Kind.PARTITION_STATE: (
        schema.encode_partition_state(PartitionState(1, 0, (1,), 1)),
        lambda data: schema.decode_partition_state(PARTITION, data, 0),
    ),
    schema.Kind.CONTROLLER: (schema.encode_controller(1, 2), schema.decode_controller),
    schema.Kind.CONFIG: (schema.encode_config({}), lambda data: schema.decode_config("topics", "t", data)),
    schema.Kind.CONFIG_CHANGE: (schema.encode_config_change("topics", "t"), schema.decode_config_change),
    schema.Kind.ISR_CHANGE: (schema.encode_isr_change(PARTITIONS), schema.decode_isr_change),
    schema.Kind.PREFERRED_ELECTION: (
        schema.encode_preferred_election(PARTITIONS),
        schema.decode_preferred_election,
    ),
    schema.Kind.REASSIGNMENT: (schema.encode_reassignment({PARTITION: (1,)}), schema.decode_reassignment),
    schema.Kind.LOG_DIR_EVENT: (
        schema.encode_log_dir_event(schema.LogDirEvent(1)),
        schema.decode_log_dir_event,
    ),
    schema.Kind.PRODUCER_ID_BLOCK: (
        schema.encode_producer_id_block(ProducerIdBlock(1, 0, 999)),
        schema.decode_producer_id_block,
    ),
    schema.Kind.CLUSTER_ID: (schema.encode_cluster_id("x"), schema.decode_cluster_id),
}


@pytest.mark.parametrize("kind", schema.Kind)
def test_a_znode_of_a_newer_version_is_refused(kind: schema.Kind) -> None:
    """A newer release writes one only when every broker reads it; then this one has missed a feature."""
    data, decode = WRITTEN[kind]
    decode(data)
    newest = schema.VERSIONS[kind]
    with pytest.raises(schema.NewerSchemaError, match=f"has version {newest + 1}, .* to version {newest}: a"):
        decode(raised(data))


@pytest.mark.parametrize("kind", schema.Kind)
def test_a_field_that_a_newer_release_adds_is_ignored(kind: schema.Kind) -> None:
    data, decode = WRITTEN[kind]
    assert decode(data) == decode(json.dumps({**json.loads(data), "later": {"x": [1]}}).encode())
