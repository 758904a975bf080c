"""Compiles encoders: generates a function that turns a message into bytes, from the message's declaration.

The generated function takes a message and returns a list of bytes-like objects whose concatenation is the
body. Records are not copied: the list has the very objects of the message. Adjacent fields of fixed width,
with the length of the field after them, become one `struct` call:

    v2 = v1.name.encode(); n3 = len(v2) + 1
    if n3 < 128: add(pack_0(v1.error_code, n3) + v2)
"""

from collections.abc import Callable, Generator
from struct import Struct as Packing
from struct import pack
from typing import Any, Final

from kalda.protocol.codec_source import (
    SMALL_ARRAY_COUNT,
    SourceWriter,
    has_records,
    is_in_place,
    tagged_fields,
)
from kalda.protocol.protocol_errors import MessageError
from kalda.protocol.schema import (
    BYTES,
    RECORDS,
    STRING,
    UUID_KIND,
    ArrayKind,
    Field,
    FixedKind,
    Kind,
    Message,
    Struct,
)
from kalda.protocol.wire_format import (
    NULL_IN_PLACE,
    NULL_IN_TAG,
    STEP_ELEMENTS,
    STRING_BYTES_MAX,
    encode_uvarint,
)

Parts = list[Any]
"""Bytes-like objects and sized records, in order."""

_BYTES_LIKE: Final = frozenset((bytes, bytearray, memoryview))

_LENGTHS: Final = tuple(bytes((length,)) for length in range(128))
"""Compact lengths of one byte: a look-up costs a third of packing one."""

_USUAL_COUNTS: Final = (1, 3, 0)
"""The replication factors of laptops and of clusters, and the offline replicas of healthy ones."""


def compile_encoder(message_class: type[Message], version: int) -> Callable[[Message], Parts]:
    """Make the function that writes one version of a message.

    Raises:
        MessageError: there is no such version.
    """
    return _emit(message_class, version).function("encode")


def compile_stepped_encoder(
    message_class: type[Message], version: int
) -> Callable[[Message], Generator[None, None, Parts]]:
    """Make the generator function that does the same in steps of at most `STEP_ELEMENTS` elements.

    Raises:
        MessageError: there is no such version.
    """
    return _emit(message_class, version, in_steps=True).function("encode")


def encoder_source(message_class: type[Message], version: int) -> str:
    """The text of that function, for a reader."""
    return _emit(message_class, version).source


def _emit(message_class: type[Message], version: int, *, in_steps: bool = False) -> SourceWriter:
    source = SourceWriter(message_class, version)
    with source.block("def encode(message):"):
        source.line("parts = []")
        source.line("add = parts.append")
        if in_steps:
            source.line("yield")
        emitter = _EncoderEmitter(source, "add", in_steps=in_steps)
        emitter.write_struct("message", message_class)
        emitter.flush()
        source.line("return parts")
    return source


def _refuse(owner: Struct, name: str, message_name: str, version: int) -> None:
    """Called by emitted code for a value that the version would silently lose."""
    raise MessageError(
        f"{type(owner).__name__}.{name}={getattr(owner, name)!r} is set, "
        f"but {message_name} v{version} does not carry it"
    )


def _string_length(length: int) -> bytes:
    """Called by emitted code for a compact string whose length, plus 1, needs more than one byte."""
    if length - 1 > STRING_BYTES_MAX:
        raise MessageError(f"a string of {length - 1} bytes is above the limit of {STRING_BYTES_MAX}")
    return encode_uvarint(length)


class _EncoderEmitter:
    """Emits statements that append to one list of parts.

    `_run` holds fixed-width values that are not emitted yet: their codes, and the expressions that yield
    them. It must be empty wherever control flow forks or joins.
    """

    def __init__(self, source: SourceWriter, add: str, *, in_steps: bool) -> None:
        self._source = source
        self._in_steps = in_steps
        self._add = add
        self._run: list[tuple[str, str]] = []

    def write_struct(self, variable: str, struct_class: type[Struct]) -> None:
        """Emit the fields of a struct and, in a flexible version, its tagged section."""
        version = self._source.version
        for field in struct_class.FIELDS:
            if is_in_place(field, version):
                self._write_field(f"{variable}.{field.name}", field)
            elif not field.versions.includes(version) and not field.ignorable:
                self._write_check(variable, field)
        if self._source.flexible:
            self._write_tagged_section(variable, tagged_fields(struct_class, version))

    def flush(self) -> None:
        """Emit the run, if there is one."""
        if self._run:
            self._source.line(f"{self._add}({self._packed(self._run)})")
            self._run = []

    def _packed(self, run: list[tuple[str, str]]) -> str:
        codes = "".join(code for code, _ in run)
        if codes == "x":
            return 'b"\\0"'
        return f"{self._source.packer(codes)}({', '.join(value for _, value in run if value)})"

    def _write_check(self, variable: str, field: Field) -> None:
        schema = self._source.message_class.SCHEMA
        refuse = self._source.bind("refuse", _refuse)
        with self._source.block(f"if {self._is_set(f'{variable}.{field.name}', field)}:"):
            arguments = f"{variable}, {field.name!r}, {schema.name!r}, {self._source.version}"
            self._source.line(f"{refuse}({arguments})")

    def _is_set(self, value: str, field: Field) -> str:
        """Return an expression for whether a value differs from the field's default."""
        if field.has_fresh_default:
            if isinstance(field.kind, Kind):
                # None differs from an empty list, and is refused or written like any value.
                return f"({value} or {value} is None)"
            is_set = " or ".join(self._is_set(f"{value}.{part.name}", part) for part in field.kind.FIELDS)
            may_be_none = field.nullable.lowest <= field.nullable.highest
            return f"{value} is None or {is_set}" if may_be_none else is_set
        default = field.default()
        if default is None:
            return f"{value} is not None"
        if isinstance(default, (bool, int, float, str, bytes)):
            return f"{value} != {default!r}"
        return f"{value} != {self._source.constant('default', repr(default), lambda: default)}"

    def _write_field(self, value: str, field: Field) -> None:
        nullable = field.nullable.includes(self._source.version)
        kind = field.kind
        if not isinstance(kind, Kind):
            null = NULL_IN_TAG if field.tagged.includes(self._source.version) else NULL_IN_PLACE
            self._write_nested(value, kind, null if nullable else None)
        elif isinstance(kind, FixedKind):
            self._run.append((kind.code, f"{value}.bytes" if kind is UUID_KIND else value))
        elif isinstance(kind, ArrayKind):
            self._write_array(value, kind, nullable)
        else:
            self._write_sized(value, kind, nullable)

    def _write_nested(self, value: str, struct_class: type[Struct], null: int | None) -> None:
        variable = self._source.local("v")
        self._source.line(f"{variable} = {value}")
        if null is None:
            self.write_struct(variable, struct_class)
            return
        run = self._run
        with self._source.block(f"if {variable} is None:"):
            self._run = [*run, ("b", str(null))]
            self.flush()
        with self._source.block("else:"):
            self._run = [*run, ("b", "1")]
            self.write_struct(variable, struct_class)
            self.flush()

    def _write_sized(self, value: str, kind: Kind[Any], nullable: bool) -> None:
        """Emit a string, bytes or records: the length, fused with the run, then the thing itself."""
        data, count = self._source.local("v"), self._source.local("n")
        plus = " + 1" if self._source.flexible else ""
        self._source.line(f"{data} = {value}")
        if kind is STRING:
            encoded, length = f"{data} = {data}.encode()", f"len({data}){plus}"
        elif kind is RECORDS:
            like = self._source.bind("BYTES_LIKE", _BYTES_LIKE)
            encoded, length = "", f"(len({data}) if type({data}) in {like} else {data}.size){plus}"
        else:
            assert kind is BYTES, f"unknown kind {kind}"
            encoded, length = "", f"len({data}){plus}"
        if nullable:
            with self._source.block(f"if {data} is None:"):
                self._source.line(f'{data} = b""')
                self._source.line(f"{count} = {0 if self._source.flexible else -1}")
            with self._source.block("else:"):
                self._lines(encoded, f"{count} = {length}")
        elif kind is STRING and self._source.flexible and not self._run:
            # Empty strings are common in responses: no producer, no protocol, no metadata.
            with self._source.block(f'if {data} == "":'):
                self._source.line(f'{self._add}(b"\\1")')
            with self._source.block("else:"):
                self._lines(encoded, f"{count} = {length}")
                self._write_string(count, data)
            return
        else:
            self._lines(encoded, f"{count} = {length}")
        if kind is STRING:
            self._write_string(count, data)
        else:
            self._write_length(count)
            self._source.line(f"{self._add}({data})")

    def _lines(self, *lines: str) -> None:
        for line in lines:
            if line:
                self._source.line(line)

    def _write_string(self, count: str, data: str) -> None:
        """Emit a string's length and bytes as one part: each part costs as much as copying a short string."""
        if not self._source.flexible:
            self._run.append(("h", count))
            self._source.line(f"{self._add}({self._packed(self._run)} + {data})")
            self._run = []
            return
        self._write_compact(count, f" + {data}", "string_length", _string_length)

    def _write_length(self, count: str) -> None:
        """Emit a length; in a flexible version `count` holds it plus 1, as the wire does."""
        if not self._source.flexible:
            self._run.append(("i", count))
            self.flush()
            return
        self._write_compact(count, "", "encode_uvarint", encode_uvarint)

    def _write_compact(self, count: str, data: str, name: str, encode: Callable[[int], bytes]) -> None:
        """Emit a compact length and `data` as one part; `encode` is for lengths of several bytes."""
        with self._source.block(f"if {count} < 128:"):
            self._source.line(f"{self._add}({self._with_short_length(self._run, count)}{data})")
        with self._source.block("else:"):
            self.flush()
            self._source.line(f"{self._add}({self._source.bind(name, encode)}({count}){data})")

    def _with_short_length(self, run: list[tuple[str, str]], count: str) -> str:
        """An expression for the run and a compact length of one byte."""
        if run:
            return self._packed([*run, ("B", count)])
        return f"{self._source.bind('LENGTHS', _LENGTHS)}[{count}]"

    def _write_array(self, value: str, kind: ArrayKind[Any], nullable: bool) -> None:
        items, count = self._source.local("v"), self._source.local("n")
        self._source.line(f"{items} = {value}")
        element = kind.element
        if isinstance(element, FixedKind) and not nullable:
            self._write_fixed_array(items, count, element)
            return
        plus = " + 1" if self._source.flexible else ""
        if nullable:
            with self._source.block(f"if {items} is None:"):
                self._source.line(f"{items} = ()")
                self._source.line(f"{count} = {0 if self._source.flexible else -1}")
            with self._source.block("else:"):
                self._source.line(f"{count} = len({items}){plus}")
        else:
            self._source.line(f"{count} = len({items}){plus}")
        self._write_length(count)
        item = self._source.local("v")
        index = self._source.local("i") if self._in_steps else ""
        loop = f"for {index}, {item} in enumerate({items}):" if self._in_steps else f"for {item} in {items}:"
        with self._source.block(loop):
            if self._in_steps:
                with self._source.block(f"if not {index} % {STEP_ELEMENTS}:"):
                    self._source.line("yield")
            if not isinstance(element, Kind):
                self.write_struct(item, element)
            elif isinstance(element, FixedKind):
                self._run.append((element.code, f"{item}.bytes" if element is UUID_KIND else item))
            else:
                self._write_sized(item, element, nullable=False)
            self.flush()

    def _write_fixed_array(self, items: str, count: str, element: FixedKind[Any]) -> None:
        """Emit the run, the length and all elements as one `struct` call while the array is small."""
        run = self._run
        self._source.line(f"{count} = len({items})")
        word = "if"
        if element is not UUID_KIND:
            for usual in _USUAL_COUNTS:
                with self._source.block(f"{word} {count} == {usual}:"):
                    self._run = run
                    self._write_usual_array(items, usual, element)
                word = "elif"
        with self._source.block(f"{word} {count} < {SMALL_ARRAY_COUNT}:"):
            self._run = run
            self._write_small_array(items, count, element)
        with self._source.block("else:"):
            self._run = run
            self._write_large_array(items, count, element)

    def _write_usual_array(self, items: str, count: int, element: FixedKind[Any]) -> None:
        """Naming the elements halves the cost against handing them over with a star."""
        names = [self._source.local("v") for _ in range(count)]
        if names:
            self._source.line(f"{', '.join(names)}{',' * (count == 1)} = {items}")
        length = ("B", str(count + 1)) if self._source.flexible else ("i", str(count))
        self._run = [*self._run, length, *((element.code, name) for name in names)]
        self.flush()

    def _write_small_array(self, items: str, count: str, element: FixedKind[Any]) -> None:
        flexible = self._source.flexible
        codes = "".join(code for code, _ in self._run) + ("B" if flexible else "i")
        packers = self._source.constant(
            "pack_small",
            (codes, element.code),
            lambda: tuple(
                Packing(f">{codes}{element.code * small}").pack for small in range(SMALL_ARRAY_COUNT)
            ),
        )
        values = [value for _, value in self._run if value]
        arguments = [*values, f"{count} + 1" if flexible else count, self._starred(items, element)]
        self._source.line(f"{self._add}({packers}[{count}]({', '.join(arguments)}))")
        self._run = []

    def _write_large_array(self, items: str, count: str, element: FixedKind[Any]) -> None:
        if self._source.flexible:
            self.flush()
            uvarint = self._source.bind("encode_uvarint", encode_uvarint)
            self._source.line(f"{self._add}({uvarint}({count} + 1))")
        else:
            self._run = [*self._run, ("i", count)]
            self.flush()
        # A count before "s" would make one long string of bytes, so ids repeat their code.
        codes = (
            f'">" + {element.code!r} * {count}' if element is UUID_KIND else f'f">{{{count}}}{element.code}"'
        )
        bound = self._source.bind("pack", pack)
        self._source.line(f"{self._add}({bound}({codes}, {self._starred(items, element)}))")

    def _starred(self, items: str, element: FixedKind[Any]) -> str:
        return f"*[item.bytes for item in {items}]" if element is UUID_KIND else f"*{items}"

    def _write_tagged_section(self, variable: str, fields: list[Field]) -> None:
        if not fields:
            self._run.append(("x", ""))
            return
        is_set = [self._is_set(f"{variable}.{field.name}", field) for field in fields]
        run = self._run
        with self._source.block(f"if {' or '.join(is_set)}:"):
            self._run = run
            self.flush()
            section, tags = self._source.local("parts"), self._source.local("n")
            self._lines(f"{section} = []", f"{tags} = 0")
            for field, condition in zip(fields, is_set, strict=True):
                with self._source.block(f"if {condition}:"):
                    self._source.line(f"{tags} += 1")
                    self._write_tagged_field(f"{variable}.{field.name}", field, section)
            uvarint = self._source.bind("encode_uvarint", encode_uvarint)
            self._source.line(f"{self._add}({uvarint}({tags}))")
            self._source.line(f'{self._add}(b"".join({section}))')
        with self._source.block("else:"):
            self._run = [*run, ("x", "")]
            self.flush()

    def _write_tagged_field(self, value: str, field: Field, section: str) -> None:
        assert isinstance(field.kind, Kind) or not has_records(field.kind), "records cannot be tagged"
        body, add = self._source.local("parts"), self._source.local("add")
        self._lines(f"{body} = []", f"{add} = {body}.append")
        nested = _EncoderEmitter(self._source, add, in_steps=self._in_steps)
        nested._write_field(value, field)
        nested.flush()
        uvarint = self._source.bind("encode_uvarint", encode_uvarint)
        self._source.line(f'{body} = b"".join({body})')
        self._source.line(f"{section} += {uvarint}({field.tag}), {uvarint}(len({body})), {body}")
