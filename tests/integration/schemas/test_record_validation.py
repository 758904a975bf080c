"""A broker checks produced records against the schemas of a registry."""

import json
import ssl
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import kafka.errors
import pytest

from kalda import Admin, AlterConfigOp, ConfigResource, Consumer, NewTopic, Producer, TopicPartition
from kalda.clients.errors import BrokerResponseError, ClientError
from kalda.common.errors import ErrorCode
from kalda.net.schema_registry import basic_authorization
from kalda.schemas.payloads.framing import framed
from kalda.security.tls.authority import CertificateAuthority
from kalda.testing import KaldaProcess
from tests.integration.formats.registry_server import RegistryServer, registry_server
from tests.shared_broker import shared_broker

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        ],
    }
)
JSON = json.dumps(
    {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["id"],
    }
)
PROTOBUF = (
    'syntax = "proto3"; message Order { int32 id = 1; string note = 2; } message Other { string a = 1; }'
)

GOOD_AVRO = b"\x02\x00\x02"
GOOD_JSON = b'{"id": 1}'
GOOD_PROTOBUF = b"\x08\x01"


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with registry_server() as running:
        yield running


@pytest.fixture(scope="module")
def address(registry: RegistryServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that asks the registry and soon asks again for what was missing."""
    settings = {"kalda.schema.registry.url": registry.url, "kalda.schema.registry.missing.ttl.ms": "200"}
    with shared_broker(tmp_path_factory.mktemp("broker"), settings) as bootstrap:
        yield bootstrap


def new_topic(address: str, **config: str) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    settings = {key.replace("_", "."): value for key, value in config.items()}
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(name, partitions=1, replication_factor=1, config=settings)])
    return name


def full(address: str) -> str:
    return new_topic(address, kalda_schema_validation_value="full")


def refusal(address: str, topic: str, value: bytes | None, key: bytes | None = None, **options: Any) -> str:
    """Return the message of the broker for a refused record; empty if it was appended."""
    with Producer(bootstrap_servers=address, **options) as producer:
        error = producer.send(topic, value=value, key=key).exception(30)
    if error is None:
        return ""
    assert isinstance(error, BrokerResponseError)
    assert error.code is ErrorCode.INVALID_RECORD, error
    return str(error)


INVALID = [
    ("AVRO", AVRO, lambda _: b"", "value: the value is empty"),
    ("AVRO", AVRO, lambda _: b'{"id": 1}', "value: the first byte is 7b"),
    ("AVRO", AVRO, lambda _: b"\x00\x00\x01", "value: the schema id is truncated: 2 of 4 bytes"),
    ("AVRO", AVRO, lambda _: framed(99_999, GOOD_AVRO), "the registry has no schema with the id 99999"),
    ("AVRO", AVRO, lambda _: framed(2**32 - 1, GOOD_AVRO), "the registry has no schema with the id"),
    ("AVRO", AVRO, lambda n: framed(n, GOOD_AVRO[:2]), "value: state: the value ends inside this field"),
    ("AVRO", AVRO, lambda n: framed(n, GOOD_AVRO + b"x"), "value: 1 bytes follow the end of the value"),
    (
        "AVRO",
        AVRO,
        lambda n: framed(n, b"\x02\x00\x04"),
        "state: the index of an enum is 2; it has 2 symbols",
    ),
    ("AVRO", AVRO, lambda n: framed(n, b"\x02\x00\x01"), "state: the index of an enum is -1"),
    ("AVRO", AVRO, lambda n: framed(n, b"\x02\x04\x02"), "note: the branch of a union is 2; it has 2"),
    ("JSON", JSON, lambda n: framed(n, b'{"id": "x"}'), 'value: id: "x" is not of type "integer"'),
    ("JSON", JSON, lambda n: framed(n, b'{"note": "x"}'), 'value: "id" is a required property'),
    ("JSON", JSON, lambda n: framed(n, b'{"id": 1'), "value: the value is not JSON"),
    ("PROTOBUF", PROTOBUF, lambda n: framed(n, b"\x0d\x01\x02\x03\x04", [0]), "id: its wire type is 32 bits"),
    (
        "PROTOBUF",
        PROTOBUF,
        lambda n: framed(n, b"", [7]),
        "the message indexes are [7]; the schema has no such",
    ),
    ("PROTOBUF", PROTOBUF, lambda n: framed(n, b"\x12\x05ab", [0]), "note: it has 5 bytes; 2 are left"),
]


@pytest.mark.parametrize(("kind", "text", "value", "expected"), INVALID)
def test_refused_records_are_named(
    registry: RegistryServer,
    address: str,
    kind: str,
    text: str,
    value: Callable[[int], bytes],
    expected: str,
) -> None:
    topic = full(address)
    number = registry.register(f"{topic}-value", text, kind)

    message = refusal(address, topic, value(number))

    assert expected in message


def test_good_records_are_appended_as_they_were_sent(registry: RegistryServer, address: str) -> None:
    topic = full(address)
    values: list[bytes | None] = [
        framed(registry.register(f"{topic}-value", AVRO), GOOD_AVRO),
        framed(registry.register(f"{topic}-value", JSON, "JSON"), GOOD_JSON),
        framed(registry.register(f"{topic}-value", PROTOBUF, "PROTOBUF"), GOOD_PROTOBUF, [0]),
        None,
    ]

    with Producer(bootstrap_servers=address, linger_ms=50, compression_type="zstd") as producer:
        futures = [producer.send(topic, value=value) for value in values]
        for future in futures:
            future.result(30)

    with Consumer(bootstrap_servers=address) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        found: list[bytes | None] = []
        while len(found) < len(values):
            found += [record.value for record in consumer.poll(timeout_s=5)]
    assert values == found


def test_every_client_gets_the_reasons_of_the_records(registry: RegistryServer, address: str) -> None:
    """confluent-kafka, kafka-python and Kalda's own producer, each in a way of its own."""
    topic = full(address)
    number = registry.register(f"{topic}-value", AVRO)
    bad = framed(number, GOOD_AVRO + b"?")
    reports: list[Any] = []

    def note(error: Any, message: Any) -> None:
        reports.append((error, message))

    librdkafka = confluent_kafka.Producer({"bootstrap.servers": address})
    librdkafka.produce(topic, value=bad, on_delivery=note)
    librdkafka.produce(topic, value=framed(number, GOOD_AVRO), partition=0)
    librdkafka.flush(30)
    other = kafka.KafkaProducer(bootstrap_servers=address, api_version=(2, 6))
    try:
        with pytest.raises(kafka.errors.KafkaError) as raised:
            other.send(topic, bad).get(30)
    finally:
        other.close()

    ((error, _),) = reports
    assert confluent_kafka.KafkaError.INVALID_RECORD == error.code()
    assert isinstance(raised.value, kafka.errors.InvalidRecordError)
    assert "value: 1 bytes follow the end of the value" in refusal(address, topic, bad)


def test_one_bad_record_refuses_its_batch_and_is_named(registry: RegistryServer, address: str) -> None:
    topic = full(address)
    number = registry.register(f"{topic}-value", AVRO)
    good, bad = framed(number, GOOD_AVRO), framed(number, GOOD_AVRO[:1])

    with Producer(bootstrap_servers=address, linger_ms=500, compression_type="gzip") as producer:
        futures = [producer.send(topic, value=bad if index == 5 else good) for index in range(10)]
        outcomes = [future.exception(30) for future in futures]

    assert all(isinstance(each, BrokerResponseError) for each in outcomes)
    assert "value: note: the value ends inside this field" in str(outcomes[5])
    assert "1 of 10 records fail the topic's schema validation; first: record 5" in str(outcomes[4])
    with Consumer(bootstrap_servers=address) as consumer:
        (end,) = consumer.end_offsets([TopicPartition(topic, 0)]).values()
    assert 0 == end


def test_keys_have_settings_of_their_own(registry: RegistryServer, address: str) -> None:
    topic = new_topic(
        address, kalda_schema_validation_key="id", kalda_schema_key_subject_name_strategy="record"
    )
    number = registry.register("shop.Order", AVRO)

    assert "key: the first byte is 6b" in refusal(address, topic, b"anything", b"key")
    assert not refusal(address, topic, b"anything", framed(number, b"no order"))
    assert not refusal(address, topic, b"anything")


def test_settings_take_effect_at_once(registry: RegistryServer, address: str) -> None:
    topic = new_topic(address)
    before = refusal(address, topic, b"anything")

    with Admin(bootstrap_servers=address) as admin:
        change = AlterConfigOp.set("kalda.schema.validation.value", "id")
        admin.incremental_alter_configs({ConfigResource.topic(topic): [change]})

    assert not before
    assert "the first byte is 61" in refusal(address, topic, b"anything")


def test_transactions_are_checked_too(registry: RegistryServer, address: str) -> None:
    topic = full(address)
    number = registry.register(f"{topic}-value", AVRO)

    with Producer(bootstrap_servers=address, transactional_id=uuid.uuid4().hex) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, value=framed(number, GOOD_AVRO))
        with pytest.raises(BrokerResponseError), producer.transaction():
            producer.send(topic, value=framed(number, GOOD_AVRO + b"x")).result(30)

    with Consumer(bootstrap_servers=address, isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        assert [framed(number, GOOD_AVRO)] == [record.value for record in consumer.poll(timeout_s=10)]


def test_a_registry_that_is_away_makes_producers_wait(registry: RegistryServer, address: str) -> None:
    """Records are neither refused nor lost: the producer sends them again until the registry is back."""
    topic = full(address)
    number = registry.register(f"{topic}-value", AVRO + " ")
    registry.fail_next = 4
    assert not refusal(address, topic, framed(number, GOOD_AVRO))
    assert 0 == registry.fail_next


def test_others_are_served_while_a_lookup_waits(registry: RegistryServer, address: str) -> None:
    topic, free = full(address), new_topic(address)
    number = registry.register(f"{topic}-value", AVRO + "  ")
    registry.answers.clear()
    with Producer(bootstrap_servers=address) as waiting, Producer(bootstrap_servers=address) as other:
        future = waiting.send(topic, value=framed(number, GOOD_AVRO))
        other.send(free, value=b"x").result(30)
        was_done = future.done()
        registry.answers.set()
        future.result(30)

    assert not was_done


def test_settings_need_a_registry(bootstrap: str) -> None:
    with pytest.raises(BrokerResponseError, match="needs a registry; set the brokers"):
        new_topic(bootstrap, kalda_schema_validation_value="id")


def test_a_registry_may_need_tls_a_certificate_and_a_password(tmp_path: Path) -> None:
    """The broker shows its certificate and its credentials, and checks the registry's name."""
    now, valid = datetime.now(UTC), timedelta(days=1)
    authority = CertificateAuthority.make("registry", now, valid)
    files = {name: tmp_path / f"{name}.pem" for name in ("ca", "server", "broker")}
    files["ca"].write_bytes(authority.own.certificate)
    files["server"].write_bytes(authority.issue("registry", now, valid, ("127.0.0.1",)).key_store)
    files["broker"].write_bytes(authority.issue("broker", now, valid).key_store)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files["server"])
    tls.load_verify_locations(files["ca"])
    tls.verify_mode = ssl.CERT_REQUIRED
    with registry_server(tls) as secured:
        secured.credentials.add(basic_authorization("broker:s3cret"))
        settings = {
            "kalda.schema.registry.url": secured.url,
            "kalda.schema.registry.basic.auth.user.info": "broker:s3cret",
            "kalda.schema.registry.ssl.truststore.location": str(files["ca"]),
            "kalda.schema.registry.ssl.truststore.type": "PEM",
            "kalda.schema.registry.ssl.keystore.location": str(files["broker"]),
            "kalda.schema.registry.ssl.keystore.type": "PEM",
        }
        with KaldaProcess(tmp_path / "data", settings=settings) as broker:
            topic = full(broker.bootstrap)
            number = secured.register(f"{topic}-value", AVRO)

            assert not refusal(broker.bootstrap, topic, framed(number, GOOD_AVRO))
            assert "follow the end" in refusal(broker.bootstrap, topic, framed(number, GOOD_AVRO + b"?"))
            other = secured.register(f"{topic}-value", JSON, "JSON")
            secured.credentials.clear()
            secured.credentials.add(basic_authorization("broker:changed"))
            with (
                Producer(bootstrap_servers=broker.bootstrap, delivery_timeout_ms=2_000,
                         request_timeout_ms=1_500) as producer,
                pytest.raises(ClientError),
            ):  # fmt: skip
                producer.send(topic, value=framed(other, GOOD_JSON)).result(30)
            assert "the registry refuses the credentials" in broker.log()
            assert "s3cret" not in broker.log()
