"""Serializers that use a schema registry: with Kalda's clients, and beside Confluent's own serializers."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kalda import (
    AsyncConsumer,
    AsyncProducer,
    ClientConfigError,
    Consumer,
    Producer,
    RecordDeserializationError,
    SerializationError,
)
from kalda.clients.serde import LoadRequiredError
from kalda.schemas.payloads.proto_compiler import compile_proto
from kalda.serializers import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    SchemaRegistryError,
)
from tests.integration.cluster.helpers import shared_cluster
from tests.integration.formats.registry_server import RegistryServer, registry_server

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
    }
)
NEWER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "count", "type": "int", "default": 1}],
    }
)
ORDER_JSON = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "item": {"type": "string"}},
        "required": ["id"],
    }
)
ADDRESS_PROTO = 'syntax = "proto3"; package shop; message Address { string city = 1; }'
ORDER_PROTO = """
syntax = "proto3";
package shop;
import "address.proto";
import "google/protobuf/timestamp.proto";
message Other { int32 n = 1; }
message Order {
  int64 id = 1;
  string item = 2;
  Address to = 3;
  google.protobuf.Timestamp at = 4;
  message Line { int32 count = 1; }
}
"""
VALUE = {"id": 7, "item": "tea"}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster in a process of its own."""
    with shared_cluster(tmp_path_factory.mktemp("records"), brokers=3, settings={}) as addresses:
        yield addresses


@pytest.fixture(scope="module")
def server() -> Iterator[RegistryServer]:
    """A registry with Confluent's REST API."""
    with registry_server() as running:
        yield running


@pytest.fixture(scope="module")
def messages() -> dict[str, Any]:
    """Classes of messages, as protoc makes them."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(
        compile_proto(ORDER_PROTO, [("address.proto", ADDRESS_PROTO)])
    )
    for file in files.file:
        pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))
        for name in ("Order", "Other", "Address", "Order.Line")
    }


def conf(server: RegistryServer, **more: object) -> dict[str, object]:
    return {"schema.registry.url": server.url, "max.retries": 0} | {
        name.replace("_", "."): value for name, value in more.items()
    }


def test_avro_round_trips_and_evolves(server: RegistryServer) -> None:
    data = AvroSerializer(conf(server), ORDER).serialize("avro", (), VALUE)
    assert data is not None
    assert bytes([0]) == data[:1]
    assert ORDER == server.schemas[int.from_bytes(data[1:5], "big")]["schema"]
    assert VALUE == AvroDeserializer(conf(server)).deserialize("avro", data, ())
    assert {"id": 7, "count": 1} == AvroDeserializer(conf(server), NEWER).deserialize("avro", data, ())


@pytest.mark.parametrize(
    ("strategy", "part", "subject"),
    [
        ("topic", "value", "t-value"),
        ("TOPIC", "key", "t-key"),
        ("record", "value", "shop.Order"),
        ("topic_record", "key", "t-shop.Order"),
    ],
)
def test_subjects_follow_the_strategy(server: RegistryServer, strategy: str, part: Any, subject: str) -> None:
    AvroSerializer(conf(server, subject_name_strategy=strategy), ORDER, part=part).serialize("t", (), VALUE)
    assert subject in server.subjects


def test_the_latest_version_can_be_used(server: RegistryServer) -> None:
    number = server.register("latest-value", NEWER)
    serializer = AvroSerializer(conf(server, use_latest_version=True))
    data = serializer.serialize("latest", (), {"id": 1})
    assert data is not None
    assert number == int.from_bytes(data[1:5], "big")
    assert {"id": 1, "count": 1} == AvroDeserializer(conf(server)).deserialize("latest", data, ())


def test_a_schema_that_must_be_there_is_looked_up(server: RegistryServer) -> None:
    serializer = AvroSerializer(conf(server, auto_register_schemas=False), ORDER)
    with pytest.raises(ValueError, match="Schema not found"):
        serializer.serialize("looked-up", (), VALUE)
    number = server.register("there-value", ORDER)
    data = AvroSerializer(conf(server, auto_register_schemas=False), ORDER).serialize("there", (), VALUE)
    assert data is not None
    assert number == int.from_bytes(data[1:5], "big")


def test_an_avro_schema_with_references_is_read(server: RegistryServer) -> None:
    address = '{"type":"record","name":"Address","fields":[{"name":"city","type":"string"}]}'
    server.register("address", address)
    references: list[Any] = [{"name": "Address", "subject": "address", "version": 1}]
    person = '{"type":"record","name":"Person","fields":[{"name":"home","type":"Address"}]}'
    server.register("person-value", person, references=references)
    serializer = AvroSerializer(conf(server, use_latest_version=True))
    data = serializer.serialize("person", (), {"home": {"city": "Ulm"}})
    assert data is not None
    assert {"home": {"city": "Ulm"}} == AvroDeserializer(conf(server)).deserialize("person", data, ())


def test_an_array_of_a_billion_nothings_is_refused(server: RegistryServer) -> None:
    number = server.register("bomb-value", '{"type":"array","items":"null"}')
    bomb = b"\x00" + number.to_bytes(4, "big") + b"\x80\x80\x80\x80\x80\x80\x01\x00"
    with pytest.raises(ValueError, match="a block has 2199023255552 items"):
        AvroDeserializer(conf(server)).deserialize("bomb", bomb, ())


def test_json_is_checked_on_both_sides(server: RegistryServer) -> None:
    @dataclass
    class Order:
        id: int
        item: str

    serializer = JsonSchemaSerializer(conf(server), ORDER_JSON)
    data = serializer.serialize("json", (), Order(7, "tea"))
    assert data is not None
    assert b'{"id":7,"item":"tea"}' == data[5:].replace(b" ", b"")
    assert VALUE == JsonSchemaDeserializer(conf(server)).deserialize("json", data, ())
    assert Order(7, "tea") == JsonSchemaDeserializer(conf(server), Order).deserialize("json", data, ())
    with pytest.raises(ValueError, match="item"):
        serializer.serialize("json", (), {"id": 7, "item": 3})
    wrong = data[:5] + b'{"item":"tea"}'
    with pytest.raises(ValueError, match="id"):
        JsonSchemaDeserializer(conf(server)).deserialize("json", wrong, ())
    assert {"item": "tea"} == JsonSchemaDeserializer(conf(server, validate=False)).deserialize(
        "json", wrong, ()
    )


@pytest.mark.parametrize("name", ["Order", "Other", "Order.Line"])
def test_protobuf_messages_are_named_by_indexes(
    server: RegistryServer, messages: dict[str, Any], name: str
) -> None:
    kind = messages[name]
    data = ProtobufSerializer(conf(server), kind).serialize(f"proto-{name}", (), kind())
    assert data is not None
    assert {"Order": b"\x02\x02", "Other": b"\x00", "Order.Line": b"\x04\x02\x00"}[name] == data[5:]
    assert kind() == ProtobufDeserializer(kind).deserialize("p", data, ())
    registered = server.schemas[int.from_bytes(data[1:5], "big")]
    assert [{"name": "address.proto", "subject": "address.proto", "version": 1}] == registered["references"]


def test_what_does_not_match_is_named(server: RegistryServer, messages: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="does not match the Avro schema"):
        AvroSerializer(conf(server), ORDER).serialize("t", (), {"id": "x"})
    with pytest.raises(ValueError, match=r"it is a Other, not a shop\.Order"):
        ProtobufSerializer(conf(server), messages["Order"]).serialize("t", (), messages["Other"]())
    with pytest.raises(ValueError, match="the first byte is 7b"):
        AvroDeserializer(conf(server)).deserialize("t", b'{"a":1}', ())
    with pytest.raises(ValueError, match="has no schema 4096"):
        AvroDeserializer(conf(server)).deserialize("t", b"\x00\x00\x00\x10\x00", ())
    number = server.register("json-value", ORDER_JSON, "JSON")
    with pytest.raises(ValueError, match=f"schema {number} is JSON, not AVRO"):
        AvroDeserializer(conf(server)).deserialize("t", b"\x00" + number.to_bytes(4, "big"), ())
    with pytest.raises(ValueError, match=r"it is no shop\.Order"):
        ProtobufDeserializer(messages["Order"]).deserialize("t", b"\x00\x00\x00\x00\x01\x00\xff", ())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "`schema.registry.url` is ''"),
        ({"schema.registry.url": "ftp://x"}, "`schema.registry.url` is 'ftp://x'"),
        (
            {"schema.registry.url": "http://x", "auto.register.schema": True},
            "`auto.register.schema` is unknown",
        ),
        ({"schema.registry.url": "http://x", "auto.register.schemas": "yes"}, "it is true or false"),
        ({"schema.registry.url": "http://x", "basic.auth.user.info": "user"}, "has no colon"),
        ({"schema.registry.url": "http://x", "timeout": 0}, "a number from 1 to 300"),
        ({"schema.registry.url": "http://x", "subject.name.strategy": "t"}, "topic, record, topic_record"),
        (
            {"schema.registry.url": "http://x", "use.latest.version": True, "auto.register.schemas": True},
            "set one of them to false",
        ),
    ],
)
def test_options_that_are_not_possible_are_named(config: dict[str, object], message: str) -> None:
    with pytest.raises(ClientConfigError, match=message):
        AvroSerializer(config, ORDER)


def test_no_thread_waits_where_it_must_not(server: RegistryServer) -> None:
    serializer = AvroSerializer(conf(server), ORDER)
    with pytest.raises(LoadRequiredError) as caught:
        serializer.serialize_nowait("nowait", (), VALUE)
    caught.value.load()
    requests = server.requests
    assert serializer.serialize_nowait("nowait", (), VALUE)
    assert requests == server.requests


def test_records_of_the_clients(bootstrap: str, server: RegistryServer) -> None:
    with Producer(
        bootstrap_servers=bootstrap, value_serializer=AvroSerializer(conf(server), ORDER)
    ) as producer:
        producer.send("registry-sync", VALUE).result(30)
        producer.send("registry-sync", None).result(30)
    with Consumer(
        "registry-sync",
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(conf(server)),
    ) as consumer:
        assert [VALUE, None] == [next(consumer).value for _ in range(2)]


async def test_records_of_the_asynchronous_clients(bootstrap: str, server: RegistryServer) -> None:
    serializer = JsonSchemaSerializer(conf(server), ORDER_JSON)
    async with AsyncProducer(bootstrap_servers=bootstrap, value_serializer=serializer) as producer:
        sent = await asyncio.gather(*(producer.send("registry-async", VALUE | {"id": id}) for id in range(5)))
        await asyncio.gather(*sent)
        with pytest.raises(SerializationError, match="item"):
            await producer.send("registry-async", {"id": 1, "item": 2})
    async with AsyncConsumer(
        "registry-async",
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        value_deserializer=JsonSchemaDeserializer(conf(server)),
    ) as consumer:
        found = []
        async for record in consumer:
            found.append(record.value["id"])
            if len(found) == 5:
                break
        assert [0, 1, 2, 3, 4] == sorted(found)


async def test_a_registry_that_is_away_is_an_error_and_the_record_stays(bootstrap: str) -> None:
    """The record may be good, so it is not skipped: the next poll asks again."""
    with registry_server() as own:
        serializer = AvroSerializer(conf(own), ORDER)
        async with AsyncProducer(bootstrap_servers=bootstrap, value_serializer=serializer) as producer:
            own.fail_next = 1
            with pytest.raises(
                SchemaRegistryError, match=r"check `schema.registry.url` and that it runs.*503"
            ):
                await producer.send("registry-away", VALUE)
            await (await producer.send("registry-away", VALUE))
        async with AsyncConsumer(
            "registry-away",
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            value_deserializer=AvroDeserializer(conf(own)),
        ) as consumer:
            own.fail_next = 1
            with pytest.raises(SchemaRegistryError, match="503"):
                await consumer.poll(30)
            assert [VALUE] == [record.value for record in await consumer.poll(30)]


def test_a_value_of_an_unknown_schema_is_an_error_of_the_record(
    bootstrap: str, server: RegistryServer
) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("registry-unknown", b"\x00\x00\x0f\x00\x00abc").result(30)
    with (
        Consumer(
            "registry-unknown",
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            value_deserializer=AvroDeserializer(conf(server)),
        ) as consumer,
        pytest.raises(RecordDeserializationError, match="has no schema 983040"),
    ):
        consumer.poll(30)


def test_the_pages_programs_run(bootstrap: str, server: RegistryServer) -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/use-a-schema-registry.md").read_text()
    program = "\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    program = program.replace("127.0.0.1:9092", bootstrap).replace("http://127.0.0.1:8081", server.url)
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=100
    )
    assert 0 == run.returncode, run.stderr


class TestBesideConfluents:
    """What one writes, the other reads."""

    @pytest.fixture
    def confluent(self, server: RegistryServer) -> Iterator[Any]:
        registry = pytest.importorskip("confluent_kafka.schema_registry", exc_type=ImportError)
        with registry.SchemaRegistryClient({"url": server.url}) as client:
            yield client

    @staticmethod
    def context(topic: str) -> Any:
        from confluent_kafka.serialization import MessageField, SerializationContext

        return SerializationContext(topic, MessageField.VALUE)

    def test_avro(self, server: RegistryServer, confluent: Any) -> None:
        avro = pytest.importorskip("confluent_kafka.schema_registry.avro", exc_type=ImportError)
        context = self.context("c-avro")
        theirs = avro.AvroSerializer(confluent, ORDER)(VALUE, context)
        ours = AvroSerializer(conf(server), ORDER).serialize("c-avro", (), VALUE)
        assert theirs[5:] == (ours or b"")[5:]
        assert VALUE == avro.AvroDeserializer(confluent)(ours, context)
        assert VALUE == AvroDeserializer(conf(server)).deserialize("c-avro", theirs, ())

    def test_json_schema(self, server: RegistryServer, confluent: Any) -> None:
        json_schema = pytest.importorskip("confluent_kafka.schema_registry.json_schema", exc_type=ImportError)
        context = self.context("c-json")
        theirs = json_schema.JSONSerializer(ORDER_JSON, confluent)(VALUE, context)
        ours = JsonSchemaSerializer(conf(server), ORDER_JSON).serialize("c-json", (), VALUE)
        assert theirs[:5] == (ours or b"")[:5]
        assert VALUE == json_schema.JSONDeserializer(ORDER_JSON)(ours, context)
        assert VALUE == JsonSchemaDeserializer(conf(server)).deserialize("c-json", theirs, ())

    def test_protobuf(self, server: RegistryServer, confluent: Any, messages: dict[str, Any]) -> None:
        protobuf = pytest.importorskip("confluent_kafka.schema_registry.protobuf", exc_type=ImportError)
        for name in ("Order", "Order.Line"):
            kind, context = messages[name], self.context(f"c-{name}")
            message = kind(id=7, to={"city": "Ulm"}) if name == "Order" else kind(count=3)
            serializer = protobuf.ProtobufSerializer(kind, confluent, {"use.deprecated.format": False})
            theirs = serializer(message, context)
            ours = ProtobufSerializer(conf(server), kind).serialize(f"c-{name}", (), message)
            assert theirs == ours
            reader = protobuf.ProtobufDeserializer(kind, {"use.deprecated.format": False})
            assert message == reader(ours, context)
            assert message == ProtobufDeserializer(kind).deserialize(f"c-{name}", theirs, ())
