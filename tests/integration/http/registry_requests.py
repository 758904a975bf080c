"""Records what confluent-kafka's client and serializers ask a registry, and what ours answers.

``python -m tests.integration.http.registry_requests`` runs the client against a new registry, through a
proxy, and writes `FILE`; `test_recorded_requests.py` sends the same requests to another new registry. A
change of that file shows which answers changed, and has to be compared with Confluent's documentation.
"""

import contextlib
import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import httpx
from confluent_kafka.schema_registry import (
    AssociationCreateOrUpdateInfo,
    AssociationCreateOrUpdateRequest,
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    Rule,
    RuleKind,
    RuleMode,
    RuleParams,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from kalda.testing import ProcessCluster
from tests.http_server import http_process

FILE: Final = Path(__file__).with_name("registry_requests.jsonl")
TYPE: Final = "application/vnd.schemaregistry.v1+json"


def without_times(answer: Any) -> Any:
    """Return an answer without the times of registrations, which differ each time."""
    if isinstance(answer, dict):
        return {name: without_times(value) for name, value in answer.items() if name != "ts"}
    return [without_times(each) for each in answer] if isinstance(answer, list) else answer


def answer_of(response: httpx.Response) -> Any:
    """Return the document of a response, or its text."""
    try:
        return without_times(response.json())
    except ValueError:
        return response.text


@contextlib.contextmanager
def recording(url: str, lines: list[Mapping[str, Any]]) -> Iterator[str]:
    """Run a proxy in front of a registry that adds each request with its answer to `lines`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {"accept": self.headers.get("accept", "*/*")}
            if body:
                headers["content-type"] = self.headers["content-type"]
            with httpx.Client(timeout=60) as client:
                response = client.request(self.command, url + self.path, content=body, headers=headers)
            line: dict[str, Any] = {"method": self.command, "path": self.path}
            if body:
                line["body"] = json.loads(body)
            lines.append({**line, "status": response.status_code, "answer": answer_of(response)})
            self.send_response(response.status_code)
            self.send_header("content-type", response.headers["content-type"])
            self.send_header("content-length", str(len(response.content)))
            self.end_headers()
            self.wfile.write(response.content)

        do_POST = do_PUT = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def avro(name: str, **fields: str) -> str:
    """Return the text of a record; a field whose type ends with ``?`` may be null."""
    listed = [
        {"name": each, "type": ["null", kind[:-1]], "default": None}
        if kind.endswith("?")
        else {"name": each, "type": kind}
        for each, kind in fields.items()
    ]
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": listed})


def json_schema(name: str, *required: str, **properties: str) -> str:
    """Return the text of a closed object."""
    return json.dumps(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": name,
            "type": "object",
            "additionalProperties": False,
            "properties": {each: {"type": kind} for each, kind in properties.items()},
            "required": list(required),
        }
    )


def proto(name: str, *fields: str) -> str:
    """Return the text of a file with one message."""
    numbered = "".join(f"  {each} = {number};\n" for number, each in enumerate(fields, 1))
    return f'syntax = "proto3";\npackage shop;\n\nmessage {name} {{\n{numbered}}}\n'


SCHEMAS: Final[Mapping[str, Mapping[str, str]]] = {
    "AVRO": {
        "first": avro("Order", id="long", city="string"),
        "compatible": avro("Order", id="long", city="string", note="string?"),
        "incompatible": avro("Order", id="string", city="string"),
        "spaced": json.dumps(json.loads(avro("Order", id="long", city="string")), indent=2),
        "base": avro("Base", x="int"),
        "using": json.dumps(
            {"type": "record", "name": "Using", "fields": [{"name": "b", "type": "shop.Base"}]}
        ),
        "broken": '{"type": "recrod"}',
    },
    "JSON": {
        "first": json_schema("Order", "id", id="integer", city="string"),
        "compatible": json_schema("Order", "id", id="integer", city="string", note="string"),
        "incompatible": json_schema("Order", "id", id="string", city="string"),
        "spaced": json.dumps(json.loads(json_schema("Order", "id", id="integer", city="string")), indent=2),
        "base": json_schema("Base", x="integer"),
        "using": json.dumps({"type": "object", "properties": {"b": {"$ref": "base.json"}}}),
        "broken": '{"type": 5}',
    },
    "PROTOBUF": {
        "first": proto("Order", "int64 id", "string city"),
        "compatible": proto("Order", "int64 id", "string city", "string note"),
        "incompatible": proto("Order", "string id", "string city"),
        "spaced": proto("Order", "int64  id", "string   city"),
        "base": proto("Base", "int32 x"),
        "using": 'syntax = "proto3";\nimport "base.proto";\n\nmessage Using {\n  shop.Base b = 1;\n}\n',
        "broken": "message {",
    },
}
NAMES: Final = {"AVRO": "shop.Base", "JSON": "base.json", "PROTOBUF": "base.proto"}
LEVELS: Final = (
    "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE",
)  # fmt: skip
RULES: Final = RuleSet(
    None,
    [
        Rule(
            "positive", "ids are positive", RuleKind.CONDITION, RuleMode.WRITE, "CEL", None,
            RuleParams({"a": "b"}), "message.id > 0", None, None, False,
        )
    ],
)  # fmt: skip


def attempt(call: Callable[[], object]) -> None:
    """Run what a registry may refuse."""
    with contextlib.suppress(SchemaRegistryError, SerializationError):
        call()


def use_client(client: SchemaRegistryClient, kind: str) -> None:
    """Call every method of the client with schemas of one kind."""
    texts = SCHEMAS[kind]
    subject = f"{kind.lower()}-orders-value"

    def schema(name: str, *references: SchemaReference, **more: Any) -> Schema:
        return Schema(texts[name], kind, list(references), **more)

    def again(call: Callable[[], object]) -> None:
        client.clear_caches()
        attempt(call)

    # A subject that does not exist.
    for missing in (
        lambda: client.get_latest_version(subject),
        lambda: client.get_versions(subject),
        lambda: client.get_version(subject, 1),
        lambda: client.lookup_schema(subject, schema("first")),
        lambda: client.delete_subject(subject),
        lambda: client.delete_version(subject, 1),
        lambda: client.get_compatibility(subject),
        lambda: client.get_config(subject),
        lambda: client.delete_config(subject),
        lambda: client.get_mode(subject),
        lambda: client.delete_mode(subject),
        lambda: client.test_compatibility(subject, schema("first")),
        lambda: client.test_compatibility_all_versions(subject, schema("first")),
        lambda: client.get_latest_with_metadata(subject, {"owner": "a"}),
        lambda: client.get_referenced_by(subject, 1),
    ):
        again(missing)

    # Registration and look-up.
    again(lambda: client.register_schema(subject, schema("first")))
    again(lambda: client.register_schema(subject, schema("first")))
    again(lambda: client.register_schema_full_response(subject, schema("spaced")))
    again(lambda: client.register_schema(subject, schema("spaced"), normalize_schemas=True))
    again(lambda: client.register_schema(f"{subject}-copy", schema("first")))
    again(lambda: client.register_schema(subject, schema("broken")))
    again(lambda: client.register_schema(subject, Schema("", kind)))
    again(lambda: client.register_schema(subject, Schema(texts["first"], "THRIFT")))
    again(lambda: client.register_schema("has/slash ü", schema("first")))
    again(lambda: client.get_latest_version("has/slash ü"))
    again(lambda: client.lookup_schema(subject, schema("first")))
    again(lambda: client.lookup_schema(subject, schema("spaced"), normalize_schemas=True))
    again(lambda: client.lookup_schema(subject, schema("compatible")))
    again(lambda: client.lookup_schema(subject, schema("broken")))
    for level in LEVELS:
        client.set_compatibility(subject, level)
        again(lambda: client.get_compatibility(subject))
        again(lambda: client.test_compatibility(subject, schema("compatible")))
        again(lambda: client.test_compatibility(subject, schema("incompatible")))
    again(lambda: client.set_compatibility(subject, "SIDEWAYS"))
    client.set_compatibility(subject, "BACKWARD")
    again(lambda: client.register_schema(subject, schema("incompatible")))
    again(lambda: client.register_schema(subject, schema("compatible")))
    again(lambda: client.test_compatibility(subject, schema("incompatible"), version=1))
    again(lambda: client.test_compatibility(subject, schema("broken")))
    again(lambda: client.test_compatibility_all_versions(subject, schema("incompatible")))
    again(lambda: client.test_compatibility_all_versions(subject, schema("compatible"), normalize=True))

    # Reads.
    registered = client.get_latest_version(subject)
    for read in (
        lambda: client.get_schema(registered.schema_id),
        lambda: client.get_schema(registered.schema_id, subject_name=subject),
        lambda: client.get_schema(registered.schema_id, fmt="serialized"),
        lambda: client.get_schema(99_999),
        lambda: client.get_schema_by_guid(registered.guid),
        lambda: client.get_schema_by_guid("00000000-0000-0000-0000-000000000000"),
        lambda: client.get_subjects_by_schema_id(registered.schema_id),
        lambda: client.get_subjects_by_schema_id(registered.schema_id, deleted=True, limit=1),
        lambda: client.get_subjects_by_schema_id(99_999),
        lambda: client.get_schema_versions(registered.schema_id),
        lambda: client.get_schema_versions(99_999),
        lambda: client.get_versions(subject),
        lambda: client.get_versions(subject, deleted=True, offset=1, limit=1),
        lambda: client.get_version(subject, 1),
        lambda: client.get_version(subject, 9),
        lambda: client.get_version(subject, 0),
        lambda: client.get_subjects(),
        lambda: client.get_subjects(subject_prefix=kind.lower(), deleted=True),
        lambda: client.get_subjects(offset=1, limit=2),
        lambda: client.get_latest_version(subject, fmt="resolved"),
        lambda: client.get_schema_types(),
        lambda: client.get_contexts(),
    ):
        again(read)

    # References, metadata and rules.
    client.register_schema(f"{kind.lower()}-base", schema("base"))
    reference = SchemaReference(NAMES[kind], f"{kind.lower()}-base", 1)
    again(lambda: client.register_schema(f"{kind.lower()}-using", schema("using", reference)))
    again(lambda: client.register_schema(f"{kind.lower()}-using", schema("using")))
    missing_reference = SchemaReference(NAMES[kind], "none", 1)
    again(lambda: client.register_schema(f"{kind.lower()}-using", schema("using", missing_reference)))
    again(lambda: client.get_latest_version(f"{kind.lower()}-using"))
    again(lambda: client.get_referenced_by(f"{kind.lower()}-base", 1))
    again(lambda: client.delete_version(f"{kind.lower()}-base", 1))
    again(lambda: client.delete_subject(f"{kind.lower()}-base"))
    contract = f"{kind.lower()}-contract"
    described = schema(
        "first", metadata=Metadata(None, MetadataProperties({"owner": "a"}), None), rule_set=RULES
    )
    again(lambda: client.register_schema(contract, described))
    again(lambda: client.get_latest_version(contract))
    again(lambda: client.get_latest_with_metadata(contract, {"owner": "a"}))
    again(lambda: client.get_latest_with_metadata(contract, {"owner": "b"}))

    # Configurations and modes.
    config = ServerConfig(compatibility=ConfigCompatibilityLevel.FULL, compatibility_group="major")
    again(lambda: client.set_config(contract, config))
    again(lambda: client.get_config(contract))
    again(lambda: client.register_schema(contract, schema("spaced")))
    again(lambda: client.delete_config(contract))
    again(lambda: client.get_config())
    again(lambda: client.update_mode(contract, "READONLY"))
    again(lambda: client.get_mode(contract))
    again(lambda: client.register_schema(contract, schema("compatible")))
    again(lambda: client.update_mode(contract, "SLEEPING"))
    again(lambda: client.update_mode(contract, "IMPORT"))
    again(lambda: client.update_mode(contract, "IMPORT", force=True))
    again(lambda: client.delete_mode(contract))
    again(lambda: client.get_global_mode())

    # Associations, which serializers ask for.
    again(lambda: client.get_associations_by_resource_name(kind.lower(), "-", "topic", ["value"]))
    new = AssociationCreateOrUpdateRequest(
        kind.lower(), "-", f"id-{kind}", "topic", [AssociationCreateOrUpdateInfo(subject, "value")]
    )
    again(lambda: client.create_association(new))
    again(lambda: client.delete_associations(f"id-{kind}"))

    # Deletion.
    again(lambda: client.delete_version(subject, 1, permanent=True))
    again(lambda: client.delete_version(subject, 1))
    again(lambda: client.delete_version(subject, 1))
    again(lambda: client.get_version(subject, 1))
    again(lambda: client.get_version(subject, 1, deleted=True))
    again(lambda: client.get_versions(subject, deleted_only=True))
    again(lambda: client.delete_version(subject, 1, permanent=True))
    again(lambda: client.delete_subject(subject))
    again(lambda: client.get_subjects(deleted_only=True))
    again(lambda: client.lookup_schema(subject, schema("compatible"), deleted=True))
    again(lambda: client.register_schema(subject, schema("incompatible")))
    again(lambda: client.delete_subject(f"{subject}-copy", permanent=True))
    again(lambda: client.get_latest_version(f"{subject}-copy"))


def order_class() -> Any:
    """Make the class of a Protobuf message without a compiler."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate((("id", "TYPE_INT64"), ("city", "TYPE_STRING")), 1):
        field = message.field.add(name=name, number=number, label="LABEL_OPTIONAL")
        field.type = getattr(descriptor_pb2.FieldDescriptorProto, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def use_serializers(new_client: Callable[[], SchemaRegistryClient]) -> None:
    """Write and read values with each serializer in the ways that its options have."""
    order = order_class()
    value = {"id": 7, "city": "x"}
    text = SCHEMAS["JSON"]["first"]
    plain = {"use.deprecated.format": False}
    kinds: Mapping[str, tuple[Callable[..., Any], Callable[..., Any], Any]] = {
        "avro": (
            lambda client, options: AvroSerializer(client, SCHEMAS["AVRO"]["first"], conf=options),
            lambda client, options: AvroDeserializer(client, conf=options),
            value,
        ),
        "json": (
            lambda client, options: JSONSerializer(text, client, conf=options),
            lambda client, options: JSONDeserializer(text, schema_registry_client=client, conf=options),
            value,
        ),
        "protobuf": (
            lambda client, options: ProtobufSerializer(order, client, {**plain, **options}),
            lambda client, options: ProtobufDeserializer(order, {**plain, **options}, client),
            order(**value),
        ),
    }
    for kind, (serializer, deserializer, given) in kinds.items():
        ways: list[Mapping[str, Any]] = [
            {},
            {"normalize.schemas": True},
            {"auto.register.schemas": False},
            {"auto.register.schemas": False, "use.latest.version": True},
            {"subject.name.strategy": record_subject_name_strategy},
            {"subject.name.strategy": topic_record_subject_name_strategy},
        ]
        for way in ways:
            attempt(partial(write_and_read, new_client, serializer, deserializer, way, kind, given))


def write_and_read(
    new_client: Callable[[], SchemaRegistryClient],
    serializer: Callable[..., Any],
    deserializer: Callable[..., Any],
    way: Mapping[str, Any],
    kind: str,
    given: Any,
) -> None:
    """Serialize a value and read it again, each with a client that knows nothing yet."""
    context = SerializationContext(f"{kind}-topic", MessageField.VALUE)
    data = serializer(new_client(), dict(way))(given, context)
    names = ("use.latest.version", "subject.name.strategy")
    deserializer(new_client(), {name: way[name] for name in names if name in way})(data, context)


def record() -> None:
    """Write `FILE`."""
    lines: list[Mapping[str, Any]] = []
    with (
        tempfile.TemporaryDirectory() as directory,
        ProcessCluster(Path(directory), brokers=1) as cluster,
        http_process(cluster, Path(directory) / "http") as http,
        recording(http.url, lines) as url,
    ):

        def new_client() -> SchemaRegistryClient:
            return SchemaRegistryClient({"url": url, "max.retries": 0})

        with new_client() as client:
            for kind in SCHEMAS:
                use_client(client, kind)
            client.set_compatibility(level="FULL")
            client.get_compatibility()
            client.set_compatibility(level="BACKWARD")
            attempt(lambda: client.update_global_mode("READONLY"))
            attempt(lambda: client.register_schema("late", Schema('"int"', "AVRO")))
            attempt(lambda: client.update_global_mode("READWRITE"))
        use_serializers(new_client)
    FILE.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    print(f"{len(lines)} requests, {len({(each['method'], each['path']) for each in lines})} different")


if __name__ == "__main__":
    record()
