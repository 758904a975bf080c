"""Writes and reads records with the serializers of confluent-kafka, and uses its client of the registry.

Arguments: the brokers and the registry's URL. It prints one JSON object with what it saw.
"""

import json
import sys

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

BOOTSTRAP, URL = sys.argv[1:]
AVRO = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"city","type":"string"}]}'
)
JSON_SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "city": {"type": "string"}},
    }
)
VALUE = {"id": 7, "city": "Bílina"}


def order_class():
    """Make the class of a Protobuf message without a compiler."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate((("id", "TYPE_INT64"), ("city", "TYPE_STRING")), 1):
        field = message.field.add(name=name, number=number, label="LABEL_OPTIONAL")
        field.type = getattr(descriptor_pb2.FieldDescriptorProto, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def round_trip(topic, serializer, deserializer, value):
    """Send a value through a topic; return it as it was read."""
    context = SerializationContext(topic, MessageField.VALUE)
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    producer.produce(topic, serializer(value, context))
    producer.flush()
    settings = {"bootstrap.servers": BOOTSTRAP, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    while True:
        message = consumer.poll(10)
        if message is not None and message.error() is None:
            break
    consumer.close()
    return deserializer(message.value(), context)


def main():
    client = SchemaRegistryClient({"url": URL})
    order = order_class()
    seen = {
        "avro": round_trip("avro", AvroSerializer(client, AVRO), AvroDeserializer(client), VALUE),
        "json": round_trip("json", JSONSerializer(JSON_SCHEMA, client), JSONDeserializer(JSON_SCHEMA), VALUE),
    }
    options = {"use.deprecated.format": False}
    found = round_trip(
        "protobuf",
        ProtobufSerializer(order, client, options),
        ProtobufDeserializer(order, options),
        order(**VALUE),
    )
    seen["protobuf"] = {"id": found.id, "city": found.city}
    seen["subjects"] = sorted(client.get_subjects())
    latest = client.get_latest_version("avro-value")
    seen["latest"] = [latest.version, latest.schema_id]
    seen["lookup"] = client.lookup_schema("avro-value", Schema(AVRO, "AVRO")).schema_id
    seen["compatible"] = client.test_compatibility("avro-value", Schema('"int"', "AVRO"))
    seen["level"] = client.set_config and client.get_compatibility()
    client.set_compatibility("avro-value", "NONE")
    seen["own level"] = client.get_compatibility("avro-value")
    seen["second"] = client.register_schema("avro-value", Schema('"int"', "AVRO"))
    seen["versions"] = client.get_versions("avro-value")
    client.register_schema("base", Schema('{"type":"record","name":"Base","fields":[]}', "AVRO"))
    using = Schema('["null","Base"]', "AVRO", [SchemaReference("Base", "base", 1)])
    seen["with a reference"] = client.get_schema(client.register_schema("using", using)).schema_str
    seen["deleted"] = client.delete_version("avro-value", 2)
    try:
        client.get_version("avro-value", 9)
    except SchemaRegistryError as error:
        seen["error"] = [error.http_status_code, error.error_code]
    print(json.dumps(seen, ensure_ascii=True))


main()
