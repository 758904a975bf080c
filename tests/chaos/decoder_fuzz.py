"""Feeds hostile bytes and hostile schemas to every value format, in a process of its own that is watched.

    python -m tests.chaos.decoder_fuzz --minutes 60 --seed 1
    python -m tests.chaos.decoder_fuzz --only 12345        # one round again

A round takes everything from its seed. It fails when a decoder raises, loses a row, needs more than
`SECONDS_MAX`, or calls a value good beside others that it calls bad alone. The parent sees a process that
ends or grows beyond `MEMORY_MAX`, and names the seed. Seeds that have failed are kept in `KEPT`;
`tests/property/formats/test_decoder_fuzz.py` runs them.
"""

import argparse
import base64
import copy
import io
import json
import multiprocessing
import multiprocessing.connection
import random
import resource
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import fastavro
import pyarrow as pa

from kalda.formats import Decoder, FormatError, FormatSpec, open_decoder
from kalda.formats.merging import merged_all
from kalda.formats.protobuf_schema import compile_proto
from tests.integration.formats.registry_server import RegistryServer, registry_server

SECONDS_MAX: Final = 60
BYTES_MAX: Final = 20_000_000
MEMORY_MAX: Final = 1_000_000_000
ROUNDS_PER_PROCESS: Final = 400
KEPT: Final[tuple[int, ...]] = (1, 2, 3, 1051, 2041, 2133)
"""Rounds that have found something, and one of each kind."""

DDL: Final = (
    "a bigint, i int, x double, f float, d decimal(12,3), s string, b boolean, t timestamp, day date, "
    "raw binary, l array<struct<p: bigint, q: string>>, n struct<k: string, v: double>, m array<array<int>>"
)
FLAT: Final = "a bigint, x double, d decimal(12,3), s string, b boolean, t timestamp, day date"
PROTO: Final = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Order {
  int64 id = 1; optional string name = 2; double x = 3; repeated int32 tags = 4; map<string, Item> items = 5;
  enum Color { RED = 0; BLUE = 1; } Color color = 6; google.protobuf.Timestamp at = 7; Item item = 8;
  google.protobuf.Int64Value wrapped = 9; uint64 big = 10; bytes raw = 11; repeated Item more = 12;
  message Item { string z = 1; repeated Leaf leaves = 2; }
  message Leaf { double v = 1; repeated Leaf2 w = 2; }
  message Leaf2 { bool b = 1; }
}
message Other { int32 a = 1; string id = 2; }
"""
AVRO: Final[list[Any]] = [
    {
        "type": "record",
        "name": "E",
        "fields": [
            {"name": "a", "type": "int"},
            {"name": "s", "type": ["null", "string"]},
            {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "e", "type": {"type": "enum", "name": "C", "symbols": ["R", "B"]}},
            {"name": "f", "type": {"type": "fixed", "name": "F", "size": 4}},
            {
                "name": "n",
                "type": {"type": "record", "name": "N", "fields": [{"name": "x", "type": "double"}]},
            },
        ],
    },
    {
        "type": "record",
        "name": "L",
        "fields": [
            {"name": "a", "type": "string"},
            {"name": "l", "type": {"type": "array", "items": {"type": "array", "items": "boolean"}}},
            {"name": "m", "type": {"type": "map", "values": ["null", "long"]}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    },
    {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {
                "name": "before",
                "type": ["null", {"type": "record", "name": "V", "fields": [{"name": "id", "type": "long"}]}],
            },
            {"name": "after", "type": ["null", "V"]},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"]},
        ],
    },
    "long",
    {"type": "array", "items": "null"},
    {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]},
]


@dataclass
class Target:
    """A decoder and what its values are made of."""

    name: str
    decoder: Decoder
    good: list[bytes]
    head: bytes = b""


class Round:
    """One batch of values for one decoder."""

    def __init__(
        self, seed: int, targets: list[Target], registry: RegistryServer, words: list[bytes]
    ) -> None:
        self.rng: Final = random.Random(seed)
        self.target = self.rng.choice(targets)
        self._registry: Final = registry
        self._words: Final = words

    def run(self) -> str:
        """Decode a batch and check it; return what was done."""
        if self.target.name.endswith("-sr") and self.rng.random() < 0.3:
            self._add_schema()
        count = self.rng.choice((1, 2, 3, 7, 20, 200))
        values = [self._value() for _ in range(count)]
        if self.rng.random() < 0.05:
            size = sum(len(each or b"") + 1 for each in values)
            values = values * min(self.rng.choice((10, 100, 1000)), 1 + BYTES_MAX // size)
        array = pa.array(values, self.rng.choice((pa.binary(), pa.large_binary())))
        check(self.target.decoder, array, self.rng)
        return f"{self.target.name}: {len(values)} values of {sum(len(each or b'') for each in values)} bytes"

    def _value(self) -> bytes | None:
        rng = self.rng
        chosen = rng.random()
        if chosen < 0.4:
            return rng.choice(self.target.good)
        if chosen < 0.7:
            return self._damaged(rng.choice(self.target.good))
        if chosen < 0.75:
            return None
        if chosen < 0.8:
            return self.target.head + rng.randbytes(rng.choice((0, 1, 4, 20, 300)))
        if chosen < 0.9:
            return self.target.head + self._bomb()
        return self.target.head + b"".join(rng.choice(self._words) for _ in range(rng.choice((1, 5, 30))))

    def _damaged(self, value: bytes) -> bytes:
        rng, made = self.rng, bytearray(value)
        for _ in range(rng.choice((1, 1, 2, 5))):
            place = rng.randrange(len(made) + 1)
            kind = rng.randrange(6)
            if kind == 0 and place < len(made):
                made[place] = rng.randrange(256)
            elif kind == 1:
                del made[place:]
            elif kind == 2:
                del made[place : place + rng.randrange(1, 9)]
            elif kind == 3:
                made[place:place] = rng.choice(self._words)
            elif kind == 4:
                end = place + rng.randrange(1, 40)
                made[place:end] = made[place:end] * rng.choice((2, 3, 50))
            elif place < len(made):
                made[place] ^= 1 << rng.randrange(8)
        return bytes(made)

    def _bomb(self) -> bytes:
        """Return a value that is large once it is parsed."""
        rng = self.rng
        size = rng.choice((10, 100, 300, 5_000, 60_000, 300_000))
        kinds: list[Callable[[], bytes]] = [
            lambda: b'{"a":' * size + b"1" + b"}" * size,
            lambda: b'{"q":' + b"[" * size + b"]" * size + b"}",
            lambda: b'{"after":' + b'{"a":' * size + b"1" + b"}" * size + b',"op":"c"}',
            lambda: b"{" + b",".join(b'"k%d":%d' % (each, each) for each in range(size)) + b"}",
            lambda: b'{"n":{' + b",".join(b'"k%d":%d' % (each, each) for each in range(size)) + b"}}",
            lambda: b'{"l":[' + b",".join([b"{}"] * size) + b"]}",
            lambda: b'{"l":[{' + b",".join(b'"k%d":1' % e for e in range(900)) + b"}" + b",{}" * size + b"]}",
            lambda: b'{"a":' + b"9" * size + b"}",
            lambda: b'{"d":1e' + b"9" * (size % 400 + 1) + b',"x":1e999}',
            lambda: b'{"s":"' + b"\\" * size + b'"}',
            lambda: b'{"a":1}' * size,
            lambda: b"\x62\x00" * size,  # Protobuf: as many empty messages
            lambda: b"\x62\x04\x12\x02\x12\x00" * (size // 3),
            lambda: b"\x12" + b"\x0b" * size,  # Protobuf: groups inside each other
            lambda: b"\x02" * size,  # Avro: as many small numbers
            lambda: b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"\x00" * (size % 100),
            lambda: b"\xfe\xff\xff\xff\x0f" * (size % 1000),
            lambda: b"," * size,
            lambda: b'"' * size,
            lambda: b'"a' + b"\n" * size,
        ]
        return rng.choice(kinds)()

    def _add_schema(self) -> None:
        """Register a hostile schema, and give its id to values."""
        rng = self.rng
        if "protobuf" in self.target.name:
            data = bytearray(self._registry_descriptors)
            for _ in range(rng.choice((0, 1, 3))):
                data[rng.randrange(len(data))] = rng.randrange(256)
            text, kind = "base64:" + base64.b64encode(bytes(data)).decode(), "PROTOBUF"
        else:
            text, kind = json.dumps(self._schema(rng.choice((2, 4, 70)))), "AVRO"
            if rng.random() < 0.3:
                made = bytearray(text.encode())
                made[rng.randrange(len(made))] = rng.randrange(32, 127)
                text = made.decode(errors="replace")
        references: list[dict[str, str | int]] = []
        if rng.random() < 0.2:
            references = [{"name": "loop", "subject": "loop", "version": 1}]
        number = self._registry.register("fuzz", text, kind, references)
        head = b"\0" + number.to_bytes(4, "big")
        self.target = copy.copy(self.target)
        self.target.good = self.target.good + [head + value[5:] for value in self.target.good]

    _registry_descriptors: bytes = b""

    def _schema(self, depth: int) -> Any:
        rng = self.rng
        inner = (lambda: self._schema(depth - 1)) if depth > 0 else (lambda: "long")
        name = f"N{rng.randrange(5)}"
        fields = [
            {"name": f"f{each}", "type": inner()} for each in range(1 if depth > 5 else rng.randrange(4))
        ]
        return rng.choice(
            [
                {"type": "record", "name": name, "fields": fields},
                {"type": "array", "items": inner()} if depth < 6 else {"type": "array", "items": "null"},
                {"type": "map", "values": rng.choice(("null", "int"))},
                ["null", rng.choice(("int", "string", "bytes"))],
                {"type": "fixed", "name": name, "size": rng.choice((0, 4, 1 << 31, -1, 1 << 70, "x"))},
                {
                    "type": "enum",
                    "name": name,
                    "symbols": [f"S{each}" for each in range(rng.choice((0, 2, 9999)))],
                },
                {
                    "type": "bytes",
                    "logicalType": "decimal",
                    "precision": rng.choice((1, 38, 64, -1)),
                    "scale": rng.choice((0, 2, 50)),
                },
                {
                    "type": "long",
                    "logicalType": rng.choice(("timestamp-nanos", "timestamp-millis", "time-micros")),
                },
                rng.choice(("null", "boolean", "int", "long", "float", "double", "bytes", "string", name)),
            ]
        )


def check(decoder: Decoder, values: pa.BinaryArray, rng: random.Random) -> None:
    """Check what becomes of values, together, alone and cut elsewhere."""
    bound = decoder
    if decoder.schema() is None:
        cut = rng.randrange(len(values) + 1)
        columns = decoder.columns(values)
        parts = merged_all([decoder.columns(values.slice(0, cut)), decoder.columns(values.slice(cut))])
        assert named(columns) == named(parts), f"{columns} is not {parts}, cut at {cut}"
        try:
            bound = decoder.with_columns(columns)
        except FormatError:  # too many columns: the pipeline says so
            return
    decoded = bound.decode(values)
    assert len(values) == len(decoded.columns)
    decoded.columns.validate(full=True)
    bad = {each.row: each.error_class for each in decoded.errors}
    for index in rng.sample(range(len(values)), min(5, len(values))):
        one = values.slice(index, 1)
        alone = bound.decode(one)
        assert bad.get(index) == (alone.errors[0].error_class if alone.errors else None), (
            index,
            alone.errors,
        )
        assert text_of(decoded.columns.slice(index, 1)) == text_of(alone.columns), index
        own = decoder.decode(one) if decoder.schema() is None else alone
        assert (index in bad) == bool(own.errors), (index, own.errors)


def text_of(rows: pa.StructArray) -> str:
    """Return rows as a text that shows what they hold, far times included."""
    try:
        return repr(rows.to_pylist())
    except (ValueError, OverflowError):  # Python has no such time
        return str(rows.filter(rows.is_valid()))


def named(kind: pa.DataType) -> Any:
    """Return a type with the fields of structs by name: a cut may find them in another order."""
    if pa.types.is_struct(kind):
        return {field.name: named(field.type) for field in kind}
    if pa.types.is_list(kind):
        return [named(kind.value_type)]
    if pa.types.is_union(kind):
        return tuple(named(field.type) for field in kind)
    return str(kind)


def json_values() -> list[bytes]:
    """Return good JSON objects."""
    rows: list[Any] = [
        {
            "a": 1,
            "x": 1.5,
            "s": "text",
            "n": {"k": "v", "v": 2.5},
            "l": [{"p": 1}, {"q": "y"}],
            "m": [[1], []],
        },
        {"s": "é", "b": True, "t": "2026-01-01T00:00:00Z", "day": "2026-01-01", "raw": "AAE=", "d": 1.25},
        {"a": None, "n": None, "l": [], "other": {"deep": [{"x": [1, "1", None]}]}},
        {"b": 1, "x": 3, "s": 5},
    ]
    return [json.dumps(each, ensure_ascii=False).encode() for each in rows] + [b"{}", b'{"x":NaN}']


def events() -> list[bytes]:
    """Return good Debezium events, and some that are none."""
    row = {"id": 1, "name": "a"}
    made: list[Any] = [
        {"before": None, "after": row, "op": "c", "ts_ms": 5, "source": {"lsn": 7}},
        {
            "schema": {"type": "struct"},
            "payload": {"before": row, "after": {"id": 2.5}, "op": "u", "ts_ms": 6},
        },
        {"before": row, "after": None, "op": "d", "source": {"lsn": 9}},
        {"after": "text", "op": "c"},
        {"after": {"id": "text"}, "op": "x"},
        {"after": {"op": 1}, "op": "c"},
        {"payload": 5, "op": 7},
    ]
    return [json.dumps(each).encode() for each in made]


def avro_values(schemas: list[Any], heads: list[bytes]) -> list[bytes]:
    """Return good Avro values with heads."""
    rows: list[Any] = [
        {"a": 1, "s": None, "t": 5, "d": 1, "e": "R", "f": b"1234", "n": {"x": 0.5}},
        {"a": "x", "l": [[True], []], "m": {"k": None, "j": 2}, "day": 1, "u": "text", "ms": 1},
        {"before": None, "after": {"id": 1}, "op": "c", "ts_ms": None},
        7,
    ]
    made = []
    for schema, head, row in zip(schemas, heads, rows, strict=False):
        stream = io.BytesIO()
        stream.write(head)
        plain = json.loads(json.dumps(schema).replace('"logicalType"', '"ignored"'))
        row = row | {"d": b"\x01"} if isinstance(row, dict) and "d" in row else row
        fastavro.schemaless_writer(stream, fastavro.parse_schema(plain), row)
        made.append(stream.getvalue())
    return [*made, heads[4] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", heads[5] + b"\x00"]


def open_targets(registry: RegistryServer) -> list[Target]:
    """Return a decoder of each kind."""
    descriptors = compile_proto(PROTO)
    proto = "base64:" + base64.b64encode(descriptors).decode()
    Round._registry_descriptors = descriptors
    registry.schemas[900] = {
        "schema": '"long"',
        "references": [{"name": "loop", "subject": "loop", "version": 1}],
    }
    registry.subjects["loop"] = [900]
    heads = [
        b"\0" + registry.register(f"avro{index}", json.dumps(each)).to_bytes(4, "big")
        for index, each in enumerate(AVRO)
    ]
    head = b"\0" + registry.register("proto", PROTO, "PROTOBUF").to_bytes(4, "big")
    order = b"\x08\x05\x12\x01n\x22\x02\x01\x02\x2a\x05\x0a\x01k\x12\x00\x42\x03\x0a\x01z\x62\x02\x12\x00"
    messages = [order, b"", b"\x08\x07", b"\x3a\x02\x08\x01"]
    framed = [head + b"\0" + each for each in messages] + [head + b"\x02\x02\x08\x01\x12\x01q"]
    url = {"registry.url": registry.url}

    def opened(
        name: str, good: list[bytes], head: bytes = b"", schema: str | None = None, **more: str
    ) -> Target:
        options = url if "-sr" in name else {}
        return Target(name, open_decoder(FormatSpec(name, schema, None, {**options, **more})), good, head)

    avro_good = avro_values(AVRO, heads)
    return [
        opened("json", json_values()),
        opened("json", json_values() + events()),
        opened("json", json_values(), schema=DDL),
        opened("json", json_values(), schema="a bigint, n map<string, string>"),
        opened("json", json_values(), schema="s string NOT NULL, t timestamp", timestamp_format="epoch_ms"),
        opened("debezium-json", events()),
        opened("debezium-json", events(), schema="id bigint, name string"),
        opened(
            "csv", [b"1,1.5,2.25,text,true,2026-01-01T00:00:00Z,2026-01-01", b',,,"a ""b""",,,'], schema=FLAT
        ),
        opened("avro", [each[5:] for each in avro_good[:1]], schema=json.dumps(AVRO[0])),
        opened("avro", [each[5:] for each in avro_good[1:2]], schema=json.dumps(AVRO[1])),
        opened("avro-sr", avro_good, heads[0]),
        opened("avro-sr", avro_good, heads[1]),
        opened("avro-sr", avro_good, heads[0], schema=json.dumps(AVRO[0])),
        opened("debezium-avro-sr", avro_good, heads[2]),
        opened("protobuf", messages, schema=proto),
        opened("protobuf-sr", [*framed, *avro_good], head),
        opened("protobuf-sr", [*framed, *avro_good], head + b"\0", schema=proto),
        opened("string", json_values()),
        opened("raw", json_values()),
    ]


WORDS: Final = [
    *(b'{ } [ ] " , : \\ \\u \\ud800 null true 1e999 -0 NaN Infinity -Inf "op" "after" "payload"').split(
        b" "
    ),
    *(b"\n", b"\r", b"\0", b"\xff", b"\xc3\xa9"),
    b" ",
    b'"a":',
    b'"l":[{}',
    b"\0\0\0\0",
    b"\0\0\0\0\1",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x12\xff\xff\xff\xff\x0f",
    b"9223372036854775808",
    b"9999-12-31T23:59:59-05:00",
]


class Fuzz:
    """Decoders with a registry, for many rounds."""

    def __init__(self) -> None:
        self._stack: Final = ExitStack()
        self._registry: Final = self._stack.enter_context(registry_server())
        self._targets: Final = open_targets(self._registry)

    def run(self, seed: int) -> str:
        """Run a round; raises what it finds."""
        return Round(seed, self._targets, self._registry, WORDS).run()

    def close(self) -> None:
        """Stop the registry."""
        self._stack.close()


def work(first: int, count: int, pipe: "multiprocessing.connection.Connection") -> None:
    """Run rounds and tell the parent about each."""
    resource.setrlimit(resource.RLIMIT_AS, (4 * MEMORY_MAX, 4 * MEMORY_MAX))
    fuzz = Fuzz()
    for seed in range(first, first + count):
        pipe.send(("begin", seed, ""))
        began = time.process_time()
        try:
            done = fuzz.run(seed)
            problem = ""
        except BaseException:
            done, problem = "", traceback.format_exc()
        seconds = time.process_time() - began
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if memory > MEMORY_MAX:
            problem += f"{memory / 1e6:.0f} MB; {done}"
        if seconds > SECONDS_MAX:
            problem += f"{seconds:.0f} s; {done}"
        pipe.send(("end", seed, problem))
        if memory > MEMORY_MAX:
            break
    pipe.send(("done", 0, f"{memory / 1e6:.0f} MB"))
    fuzz.close()


def main() -> int:
    """Run rounds for some minutes; the status is 1 if one failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    chosen = parser.parse_args()
    if chosen.only is not None:
        fuzz = Fuzz()
        try:
            print(fuzz.run(chosen.only))
        finally:
            fuzz.close()
        print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB")
        return 0
    began, seed, failed, most = time.monotonic(), chosen.seed, 0, "0 MB"
    spawn = multiprocessing.get_context("spawn")
    while time.monotonic() - began < chosen.minutes * 60:
        ours, theirs = spawn.Pipe(duplex=False)
        process = spawn.Process(target=work, args=(seed, ROUNDS_PER_PROCESS, theirs))
        process.start()
        theirs.close()
        last, is_done = seed, False
        while True:
            try:
                if not ours.poll(10 * SECONDS_MAX):
                    print(f"seed {last}: hangs", flush=True)
                    process.kill()
                kind, last, text = ours.recv()
            except EOFError:
                break
            if kind == "done":
                is_done, most = True, max(most, text, key=lambda each: int(each.split()[0]))
                break
            if kind == "end" and text:
                failed += 1
                print(f"seed {last}:\n{text}", flush=True)
            seed = last + 1 if kind == "end" else seed
        process.join()
        if not is_done:
            failed += 1
            print(f"seed {last}: the process ended with {process.exitcode}", flush=True)
            seed = last + 1
        minutes = (time.monotonic() - began) / 60
        print(f"{minutes:.1f} min, next seed {seed}, {failed} failed, at most {most}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
