"""Compiles decoders: generates a function that reads a message from bytes, from the message's declaration.

The generated function takes a buffer, a position and the end, and returns the message and the position after
it. It creates objects without running constructors and stores values straight into their slots, so it must
set every field of every object, also those that the version does not carry. Adjacent fields of fixed width,
with the length of the field after them, are one `struct` call:

    v2.error_code, n3 = unpack_0(data, position); position += 3

Input that ends too early raises `struct.error` or `IndexError`, which `codec.decode` turns into
`ProtocolError`. Slices would silently be short, so they are checked against `end`.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from struct import Struct as Packing
from struct import calcsize, unpack_from
from typing import Any, NoReturn

from kalda.protocol.codec_source import (
    SMALL_ARRAY_COUNT,
    SourceWriter,
    has_records,
    is_in_place,
    size_min,
    tagged_fields,
)
from kalda.protocol.protocol_errors import ProtocolError
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
    ELEMENTS_MAX,
    NULL_IN_PLACE,
    NULL_IN_TAG,
    STEP_ELEMENTS,
    STRING_BYTES_MAX,
    read_uvarint,
    skip_tagged_fields,
    take_elements,
    uuid_from_bytes,
)


def compile_decoder(message_class: type[Message], version: int) -> Callable[..., tuple[Any, int]]:
    """Make the function that reads one version of a message.

    Raises:
        MessageError: there is no such version.
    """
    return _emit(message_class, version).function("decode")


def compile_stepped_decoder(
    message_class: type[Message], version: int
) -> Callable[..., Generator[None, None, tuple[Any, int]]]:
    """Make the generator function that does the same in steps of at most `STEP_ELEMENTS` elements.

    It takes one argument more: how many elements the message may have. Arrays of numbers count too.

    Raises:
        MessageError: there is no such version.
    """
    return _emit(message_class, version, in_steps=True).function("decode")


def decoder_source(message_class: type[Message], version: int) -> str:
    """The text of that function, for a reader."""
    return _emit(message_class, version).source


def _emit(message_class: type[Message], version: int, *, in_steps: bool = False) -> SourceWriter:
    source = SourceWriter(message_class, version)
    source.bind("new", object.__new__)
    source.bind("refuse", _refuse)
    source.bind("read_uvarint", read_uvarint)
    arguments = "data, position, end, elements_max" if in_steps else "data, position, end"
    with source.block(f"def decode({arguments}):"):
        source.line(f"room = {'elements_max' if in_steps else ELEMENTS_MAX}")
        if in_steps:
            source.line("yield")
        emitter = _DecoderEmitter(source, is_view=has_records(message_class), in_steps=in_steps)
        variable = emitter.read_struct(message_class)
        emitter.flush()
        source.line(f"return {variable}, position")
    return source


def _refuse(text: str, position: int) -> NoReturn:
    """Called by emitted code for bytes that cannot be what they should be."""
    raise ProtocolError(f"{text} at byte {position}")


def _unpackers(code: str, flexible: bool) -> tuple[Any, ...]:
    """One `unpack_from` for each small count as the wire has it, which is one too many when flexible."""
    return tuple(
        Packing(">" + code * max(0, count - flexible)).unpack_from for count in range(SMALL_ARRAY_COUNT)
    )


class _DecoderEmitter:
    """Emits statements that advance `position` in `data`.

    `_run` holds fixed-width reads that are not emitted yet: their codes, and the targets they are stored
    in; `_after` the statements that finish them. Both must be empty wherever control flow forks or joins.
    """

    def __init__(self, source: SourceWriter, *, is_view: bool, in_steps: bool) -> None:
        self._source = source
        self._in_steps = in_steps
        self._is_view = is_view
        self._run: list[tuple[str, str]] = []
        self._after: list[str] = []

    def read_struct(self, struct_class: type[Struct]) -> str:
        """Emit the reading of a struct; returns the variable that holds it."""
        version = self._source.version
        variable = self._new(struct_class)
        for field in struct_class.FIELDS:
            if not is_in_place(field, version):
                self._store_default(f"{variable}.{field.name}", field)
        for field in struct_class.FIELDS:
            if is_in_place(field, version):
                self._read_field(f"{variable}.{field.name}", field)
        if self._source.flexible:
            self._read_tagged_section(variable, tagged_fields(struct_class, version))
        return variable

    def flush(self) -> None:
        """Emit the run, if there is one."""
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        if codes == "B":
            self._source.line(f"{self._run[0][1]} = data[position]")
        else:
            targets = ", ".join(target for _, target in self._run)
            comma = "," if len(self._run) == 1 else ""
            self._source.line(f"{targets}{comma} = {self._source.unpacker(codes)}(data, position)")
        self._source.line(f"position += {calcsize('>' + codes)}")
        for line in self._after:
            self._source.line(line)
        self._run = []
        self._after = []

    def _new(self, struct_class: type[Struct]) -> str:
        variable = self._source.local("v")
        name = self._source.bind(struct_class.__name__, struct_class)
        self._source.line(f"{variable} = new({name})")
        return variable

    def _store_default(self, target: str, field: Field) -> None:
        if not field.has_fresh_default:
            default = field.default()
            if default is None or isinstance(default, (bool, int, float, str, bytes)):
                self._source.line(f"{target} = {default!r}")
            else:
                name = self._source.constant("default", repr(default), lambda: default)
                self._source.line(f"{target} = {name}")
        elif isinstance(field.kind, Kind):
            self._source.line(f"{target} = []")
        else:
            variable = self._new(field.kind)
            for part in field.kind.FIELDS:
                self._store_default(f"{variable}.{part.name}", part)
            self._source.line(f"{target} = {variable}")

    def _read_field(self, target: str, field: Field) -> None:
        nullable = field.nullable.includes(self._source.version)
        kind = field.kind
        if not isinstance(kind, Kind):
            null = NULL_IN_TAG if field.tagged.includes(self._source.version) else NULL_IN_PLACE
            self._read_nested(target, kind, null if nullable else None)
        elif isinstance(kind, FixedKind):
            self._read_fixed(target, kind)
        elif isinstance(kind, ArrayKind):
            self._read_array(target, kind, nullable)
        else:
            self._read_sized(target, kind, nullable)

    def _read_fixed(self, target: str, kind: FixedKind[Any]) -> None:
        if kind is not UUID_KIND:
            self._run.append((kind.code, target))
            return
        raw = self._source.local("v")
        self._run.append((kind.code, raw))
        self._after.append(f"{target} = {self._source.bind('uuid_from_bytes', uuid_from_bytes)}({raw})")

    def _read_nested(self, target: str, struct_class: type[Struct], null: int | None) -> None:
        if null is None:
            variable = self.read_struct(struct_class)
            self._source.line(f"{target} = {variable}")
            return
        mark = self._source.local("n")
        self._run.append(("b", mark))
        self.flush()
        with self._source.block(f"if {mark} <= {null}:"):
            self._source.line(f"{target} = None")
        with self._source.block("else:"):
            variable = self.read_struct(struct_class)
            self.flush()
            self._source.line(f"{target} = {variable}")

    def _read_count(self, code: str) -> tuple[str, str]:
        """Emit a length; returns its variable and the condition under which it is not null.

        In a flexible version the variable holds the length plus 1, as the wire does.
        """
        count = self._source.local("n")
        self._run.append(("B" if self._source.flexible else code, count))
        self.flush()
        if not self._source.flexible:
            return count, f"{count} >= 0"
        with self._source.block(f"if {count} > 127:"):
            self._source.line(f"{count}, position = read_uvarint(data, position - 1)")
        return count, count

    def _read_null(self, target: str, count: str, nullable: bool) -> None:
        """Emit the branch that is taken for a null."""
        if nullable and self._source.flexible:
            with self._source.block("else:"):
                self._source.line(f"{target} = None")
            return
        if nullable:
            with self._source.block(f"elif {count} == -1:"):
                self._source.line(f"{target} = None")
        with self._source.block("else:"):
            what = "a length below -1" if nullable else "null where null is not allowed"
            self._source.line(f'refuse("{target.partition(".")[2] or "element"}: {what}", position)')

    def _read_sized(self, target: str, kind: Kind[Any], nullable: bool) -> None:
        assert kind is STRING or kind is BYTES or kind is RECORDS, f"unknown kind {kind}"
        count, is_present = self._read_count("h" if kind is STRING else "i")
        stop = self._source.local("n")
        with self._source.block(f"if {is_present}:"):
            self._source.line(f"{stop} = position + {count}{' - 1' if self._source.flexible else ''}")
            too_long = f"{stop} > end"
            if kind is STRING and self._source.flexible:
                too_long += f" or {count} > {STRING_BYTES_MAX + 1}"
            with self._source.block(f"if {too_long}:"):
                self._source.line(f'refuse("a {kind.name} that is too long", position)')
            taken = f"data[position:{stop}]"
            if kind is STRING:
                taken = f'str({taken}, "utf-8")' if self._is_view else f"{taken}.decode()"
            elif kind is BYTES and self._is_view:
                taken = f"bytes({taken})"
            self._source.line(f"{target} = {taken}")
            self._source.line(f"position = {stop}")
        self._read_null(target, count, nullable)

    def _read_array(self, target: str, kind: ArrayKind[Any], nullable: bool) -> None:
        element = kind.element
        if isinstance(element, FixedKind):
            self._read_fixed_array(target, element, nullable)
            return
        count, is_present = self._read_count("i")
        items = self._source.local("v")
        with self._source.block(f"if {is_present}:"):
            if self._source.flexible:
                self._source.line(f"{count} -= 1")
            self._check_fits(count, element)
            self._take_elements(count)
            self._source.line(f"{target} = {items} = []")
            with self._elements(count):
                if isinstance(element, Kind):
                    item = self._source.local("v")
                    self._read_sized(item, element, nullable=False)
                else:
                    item = self.read_struct(element)
                self.flush()
                self._source.line(f"{items}.append({item})")
        self._read_null(target, count, nullable)

    @contextmanager
    def _elements(self, count: str) -> Iterator[None]:
        """Open the loop over the elements of an array."""
        index = self._source.local("i") if self._in_steps else "_"
        with self._source.block(f"for {index} in range({count}):"):
            if self._in_steps:
                with self._source.block(f"if not {index} % {STEP_ELEMENTS}:"):
                    self._source.line("yield")
            yield

    def _take_elements(self, count: str) -> None:
        take = self._source.bind("take_elements", take_elements)
        self._source.line(f"room = {take}(room, {count}{', elements_max' * self._in_steps})")

    def _check_fits(self, count: str, element: "Kind[Any] | type[Struct]") -> None:
        smallest = size_min(element, self._source.version, self._source.flexible)
        assert smallest > 0, f"elements of {element} have no size, so their count has no bound"
        size = count if smallest == 1 else f"{count} * {smallest}"
        with self._source.block(f"if {size} > end - position:"):
            self._source.line('refuse("an array that cannot fit", position)')

    def _read_fixed_array(self, target: str, element: FixedKind[Any], nullable: bool) -> None:
        """Emit an array of numbers or ids: one prepared `struct` call while it is small."""
        flexible = self._source.flexible
        count = self._source.local("n")
        self._run.append(("B" if flexible else "i", count))
        self.flush()
        small = self._source.constant(
            "unpack_small", (element.code, flexible), lambda: _unpackers(element.code, flexible)
        )
        general = (
            f'">" + {element.code!r} * {count}' if element is UUID_KIND else f'f">{{{count}}}{element.code}"'
        )
        empty = int(flexible)
        with self._source.block(f"if {empty} < {count} < {SMALL_ARRAY_COUNT}:"):
            self._store_array(target, f"{small}[{count}](data, position)", element)
            size = f"{count} * {element.size}{f' - {element.size}' * flexible}"
            self._source.line(f"position += {size}")
        with self._source.block(f"elif {count} == {empty}:"):
            self._source.line(f"{target} = []")
        with self._source.block(f"elif {count} > {empty}:"):
            if flexible:
                with self._source.block(f"if {count} > 127:"):
                    self._source.line(f"{count}, position = read_uvarint(data, position - 1)")
                self._source.line(f"{count} -= 1")
            self._check_fits(count, element)
            if self._in_steps:
                self._read_numbers(target, count, element)
            else:
                unpack = self._source.bind("unpack_from", unpack_from)
                self._store_array(target, f"{unpack}({general}, data, position)", element)
                self._source.line(f"position += {count} * {element.size}")
        self._read_null(target, count, nullable)

    def _read_numbers(self, target: str, count: str, element: FixedKind[Any]) -> None:
        """Emit the steps in which a large array of numbers or ids is read."""
        self._take_elements(count)
        unpack = self._source.bind("unpack_from", unpack_from)
        items, left, step = self._source.local("v"), self._source.local("n"), self._source.local("n")
        self._source.line(f"{target} = {items} = []")
        with self._source.block(f"for {left} in range({count}, 0, -{STEP_ELEMENTS}):"):
            self._source.line("yield")
            self._source.line(f"{step} = min({left}, {STEP_ELEMENTS})")
            values = f'{unpack}(">" + {element.code!r} * {step}, data, position)'
            if element is UUID_KIND:
                values = f"map({self._source.bind('uuid_from_bytes', uuid_from_bytes)}, {values})"
            self._source.line(f"{items} += {values}")
            self._source.line(f"position += {step} * {element.size}")

    def _store_array(self, target: str, values: str, element: FixedKind[Any]) -> None:
        if element is UUID_KIND:
            uuid = self._source.bind("uuid_from_bytes", uuid_from_bytes)
            self._source.line(f"{target} = [{uuid}(raw) for raw in {values}]")
        else:
            self._source.line(f"{target} = [*{values}]")

    def _read_tagged_section(self, variable: str, fields: list[Field]) -> None:
        count = self._source.local("n")
        self._run.append(("B", count))
        if not fields:
            skip = self._source.bind("skip_tagged_fields", skip_tagged_fields)
            self._after.append(f"if {count}: position, room = {skip}(data, position - 1, end, room)")
            self.flush()
            return
        self.flush()
        with self._source.block(f"if {count}:"):
            with self._source.block(f"if {count} > 127:"):
                self._source.line(f"{count}, position = read_uvarint(data, position - 1)")
            self._take_elements(count)
            tag, stop = self._source.local("n"), self._source.local("n")
            with self._source.block(f"for _ in range({count}):"):
                self._source.line(f"{tag}, position = read_uvarint(data, position)")
                self._source.line(f"{stop}, position = read_uvarint(data, position)")
                self._source.line(f"{stop} += position")
                with self._source.block(f"if {stop} > end:"):
                    self._source.line('refuse("a tagged field that is too long", position)')
                word = "if"
                for field in fields:
                    with self._source.block(f"{word} {tag} == {field.tag}:"):
                        self._read_field(f"{variable}.{field.name}", field)
                        self.flush()
                    word = "elif"
                with self._source.block("else:"):
                    self._source.line(f"position = {stop}")
                with self._source.block(f"if position != {stop}:"):
                    self._source.line('refuse("a tagged field that does not fill its size", position)')
