"""Reads protobuf's wire format without its runtime, so that tests see what was encoded."""

import struct

Fields = dict[int, list["int | float | bytes"]]


def read_fields(data: bytes) -> Fields:
    """Return the values of each field: numbers, doubles for 64 bits in field 4, or bytes."""
    fields: Fields = {}
    position = 0
    while position < len(data):
        key, position = read_varint(data, position)
        field, wire_type = key >> 3, key & 7
        value: int | float | bytes
        if wire_type == 0:
            value, position = read_varint(data, position)
        elif wire_type == 1:
            value = struct.unpack_from("<d" if field == 4 else "<Q", data, position)[0]
            position += 8
        elif wire_type == 2:
            size, position = read_varint(data, position)
            value = data[position : position + size]
            position += size
        else:
            raise AssertionError(f"wire type {wire_type} in field {field}")
        fields.setdefault(field, []).append(value)
    return fields


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def part(fields: Fields, number: int) -> bytes:
    (value,) = fields[number]
    assert isinstance(value, bytes)
    return value


def attributes(fields: Fields, number: int) -> dict[str, str]:
    found = {}
    for each in fields.get(number, []):
        assert isinstance(each, bytes)
        pair = read_fields(each)
        found[part(pair, 1).decode()] = part(read_fields(part(pair, 2)), 1).decode()
    return found


def read_metrics(data: bytes) -> tuple[dict[str, str], dict[str, dict[str, object]]]:
    """Return the resource's attributes, and each metric by its name."""
    resource_metrics = read_fields(part(read_fields(data), 1))
    resource = attributes(read_fields(part(resource_metrics, 1)), 1)
    metrics: dict[str, dict[str, object]] = {}
    for each in read_fields(part(resource_metrics, 2)).get(2, []):
        assert isinstance(each, bytes)
        metric = read_fields(each)
        kind = "gauge" if 5 in metric else "sum"
        number = read_fields(part(metric, 5 if 5 in metric else 7))
        point = read_fields(part(number, 1))
        found: dict[str, object] = {"kind": kind, "value": point[4][0], "at": point[3][0]}
        if kind == "sum":
            found |= {"since": point[2][0], "temporality": number[2][0], "monotonic": number[3][0]}
        if 7 in point:
            found["attributes"] = attributes(point, 7)
        metrics[part(metric, 1).decode()] = found
    return resource, metrics
