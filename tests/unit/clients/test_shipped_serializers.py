"""The serializers of `kalda.serializers`, without a cluster."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import pytest

from kalda import (
    ClientConfigError,
    RecordDeserializationError,
    SerializationError,
    TopicPartition,
    serializers,
)
from kalda.clients.consumer.record_decoder import Deserializers
from kalda.clients.producer.serializers import as_serialize
from kalda.serializers import Serde


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


@dataclass(frozen=True)
class Line:
    article: str
    price: float


@dataclass
class Order:
    number: int
    lines: list[Line]
    side: Side = Side.BUY
    note: str | None = None
    tags: dict[str, int] = field(default_factory=dict)


@dataclass
class Everything:
    at: datetime
    day: date
    id: UUID
    amount: Decimal
    pair: tuple[int, str]
    many: tuple[int, ...]
    names: set[str]
    kind: Literal["a", 1]
    free: Any
    readings: Sequence[float]
    table: Mapping[str, list[int]]
    flag: bool = False
    parent: "Everything | None" = None


ORDER = Order(7, [Line("nut", 0.5), Line("bolt", 2.0)], Side.SELL, tags={"a": 1})
EVERYTHING = Everything(
    datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    date(2026, 1, 2),
    UUID(int=5),
    Decimal("1.50"),
    (1, "x"),
    (1, 2, 3),
    {"one"},
    "a",
    [{"x": None}],
    [1.0, 2.5],
    {"t": [1]},
)


def sent(serde: Serde[Any], value: object) -> bytes | None:
    serialize = as_serialize(serde, "value")
    assert serialize is not None
    return serialize("orders", (), value)


def both_ways(serde: Serde[Any], value: object) -> object:
    data = sent(serde, value)
    assert data is not None
    return serde.deserialize("orders", data, ())


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (serializers.json(), {"a": [1, 2.5, None, True, "ö"]}),
        (serializers.json(Order), ORDER),
        (serializers.json(Everything), EVERYTHING),
        (serializers.json(Everything), dataclasses.replace(EVERYTHING, parent=EVERYTHING, kind=1, flag=True)),
        (serializers.string(), "grüße"),
        (serializers.integer(), -(2**31)),
        (serializers.integer(bytes=8), 2**63 - 1),
    ],
)
def test_what_one_side_writes_the_other_reads(serde: Serde[Any], value: object) -> None:
    assert value == both_ways(serde, value)


def test_the_layouts_are_those_of_java() -> None:
    assert b"\xff\xff\xff\xfe" == sent(serializers.integer(), -2)
    assert b"\0\0\0\0\0\0\0\2" == sent(serializers.integer(bytes=8), 2)
    assert "ö".encode() == sent(serializers.string(), "ö")
    assert '{"name":"ö"}'.encode() == sent(serializers.json(), {"name": "ö"})


@pytest.mark.parametrize(
    "serde", [serializers.json(), serializers.json(Order), serializers.string(), serializers.integer()]
)
def test_none_is_a_tombstone(serde: Serde[Any]) -> None:
    assert sent(serde, None) is None


def test_json_may_have_more_fields_and_lack_those_with_a_default() -> None:
    data = b'{"number": 1, "lines": [], "later": {"x": 1}}'
    assert Order(1, []) == serializers.json(Order).decode(data)


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        (Order, b'{"number": "7", "lines": []}', "field `number` is '7', not an int"),
        (Order, b'{"number": true, "lines": []}', "field `number` is True, not an int"),
        (Order, b'{"number": 7, "lines": {}}', "field `lines` is {}, not a list"),
        (
            Order,
            b'{"number": 7, "lines": [{"article": "nut", "price": 1}, {"article": "nut", "price": "1"}]}',
            "field `lines[1].price` is '1', not a float",
        ),
        (Order, b'{"number": 7}', "the JSON is {'number': 7}, not complete: field `lines` is missing"),
        (Order, b'{"number": 7, "lines": [], "side": "x"}', "field `side` is 'x', not a Side"),
        (Order, b'{"number": 7, "lines": [], "note": 5}', "field `note` is 5, not str or None"),
        (Order, b'{"number": 7, "lines": [], "tags": {"a": null}}', "field `tags.a` is None, not an int"),
        (Order, b"[]", "the JSON is [], not an object"),
        (Order, b"{", "b'{' is not JSON: Expecting property name"),
        (Order, b"\xff", "is not JSON: 'utf-8' codec"),
        (list[UUID], b'["x"]', "field `[0]` is 'x', not a UUID"),
        (tuple[int, str], b"[1]", "the JSON is [1], not a list of 2"),
        (Decimal, b'"x"', "the JSON is 'x', not a Decimal"),
        (Line, b"[" * 100_000, "is not JSON"),
    ],
)
def test_what_cannot_be_read_is_named(kind: Any, data: bytes, message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the message is compared
        serializers.json(kind).decode(data)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("serde", "value", "message"),
    [
        (serializers.json(Order), {"number": 1}, "it is {'number': 1}, not a Order"),
        (
            serializers.json(Order),
            Order(1, [Line("nut", float("nan"))]),
            "field `lines[0].price` is nan, which has no JSON form",
        ),
        (serializers.json(), {"a": {"b": b"x"}}, "field `a.b` is b'x', which has no JSON form"),
        (serializers.json(), object, "it is <class 'object'>, which has no JSON form"),
        (serializers.string(), b"x", "it is b'x', not a str"),
        (serializers.integer(), "5", "it is '5', not a int"),
        (serializers.integer(), True, "it is True, not an int"),
        (serializers.integer(), 2**31, "2147483648 does not fit into 4 bytes"),
    ],
)
def test_what_cannot_be_written_is_named_with_the_topic(
    serde: Serde[Any], value: object, message: str
) -> None:
    with pytest.raises(
        SerializationError, match=r"the value serializer cannot .* for topic orders: "
    ) as error:
        sent(serde, value)
    assert message in str(error.value)


def test_a_list_that_holds_itself_cannot_be_written() -> None:
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(SerializationError, match="no JSON form"):
        sent(serializers.json(), circle)


@pytest.mark.parametrize(
    ("serde", "data", "message"),
    [
        (serializers.string(), b"\xff", r"b'\\xff' is not UTF-8"),
        (serializers.integer(), b"12345678", r"b'12345678' has 8 bytes; a number has 4"),
    ],
)
def test_bytes_of_another_kind_are_refused(serde: Serde[Any], data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        serde.decode(data)


@dataclass
class Unreadable:
    when: bytearray


@pytest.mark.parametrize("kind", [Unreadable, bytes, dict[int, str]])
def test_a_type_that_json_does_not_have_is_refused_at_once(kind: Any) -> None:
    with pytest.raises(ClientConfigError, match="no type that JSON can be read into"):
        serializers.json(kind)


def test_integers_have_one_of_two_sizes() -> None:
    with pytest.raises(ClientConfigError, match=r"integer\(bytes=2\)"):
        serializers.integer(bytes=2)  # type: ignore[arg-type]  # this is the point


def test_a_pydantic_model_is_validated() -> None:
    pydantic = pytest.importorskip("pydantic")
    model: Any = pydantic.create_model("Model", price=(float, ...), lines=(list[int], []))
    serde: Serde[Any] = serializers.json(model)

    assert model(price=1.5, lines=[1]) == both_ways(serde, model(price=1.5, lines=[1]))
    with pytest.raises(ValueError, match=r"field `lines\.0` is 'x': Input should be a valid integer"):
        serde.decode(b'{"price": 1, "lines": ["x"]}')
    with pytest.raises(SerializationError, match="not a Model"):
        sent(serde, {"price": 1.5})


def test_a_struct_of_msgspec_is_validated() -> None:
    msgspec = pytest.importorskip("msgspec")
    struct: Any = msgspec.defstruct("Struct", [("price", float), ("table", dict[str, list[int]], {})])
    serde: Serde[Any] = serializers.json(struct)

    assert struct(1.5) == both_ways(serde, struct(1.5))
    with pytest.raises(ValueError, match="field `price` is 'x': Expected `float`, got `str`"):
        serde.decode(b'{"price": "x"}')
    with pytest.raises(ValueError, match=r"the JSON is \{'price': 1, 'table': .*got `str` - at `\$\.table"):
        serde.decode(b'{"price": 1, "table": {"a": ["x"]}}')
    with pytest.raises(ValueError, match="is not JSON"):
        serde.decode(b"{")
    with pytest.raises(SerializationError, match="not a Struct"):
        sent(serde, {"price": 1.5})


def test_a_record_that_cannot_be_read_names_place_field_and_value() -> None:
    error = RecordDeserializationError(
        TopicPartition("orders", 2), 7, "value", timestamp_ms=0, key=None, value=b"", headers=(), reason="why"
    )
    assert isinstance(error, SerializationError)
    assert (
        "the value deserializer failed for the record at offset 7 of orders-2: why; to skip the record, "
        "seek() to offset 8"
    ) == str(error)


def test_a_consumer_calls_the_function_of_the_bytes() -> None:
    """Compiled code makes records without Python's loop then."""
    found = Deserializers(serializers.string(), serializers.json(Order))
    assert not found.key_needs_headers
    assert not found.value_needs_headers
    assert found.key is not None
    assert "x" == found.key(b"x")
