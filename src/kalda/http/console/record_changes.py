"""Produces a record, edits and resends one, and replays records to a topic, from the console."""

import base64
import binascii
import json
from typing import Final

from kalda.clients.producer.record_metadata import RecordMetadata
from kalda.http.console import command_lines
from kalda.http.console.changes import Change, ChangeForm, Field, Fields, Form, FormError, integer_of
from kalda.http.console.record_reading import log_ranges, read_one, read_ranges
from kalda.http.console.record_views import Record
from kalda.http.console.texts import count_text, counted
from kalda.http.console.topic_changes import topic_name_of
from kalda.http.console.topic_pages import TRAIL
from kalda.http.console.visits import Visit, path_of
from kalda.http.errors import HttpError

REPLAY_MAX: Final = 10_000
"""Records of one replay: some seconds; kalda mirror and pipelines copy more."""
_REPLAY_STEP: Final = 500
_VALUE_BYTES_MAX: Final = 1_000_000
_ENCODINGS: Final = [("text", "text"), ("base64", "Base64"), ("null", "null")]


def record_forms() -> dict[str, ChangeForm]:
    """Return the forms by their paths."""
    return {
        "/topics/{topic}/produce": ChangeForm(_show_produce, _plan_produce),
        "/topics/{topic}/replay": ChangeForm(_show_replay, _plan_replay),
    }


async def _show_produce(visit: Visit, values: Fields) -> Form:
    topic = visit.request.path_params["topic"]
    defaults: dict[str, str] = {}
    source = values.get("from", "")
    if source:
        defaults = fields_of(await record_at(visit, topic, source))
    given = {**defaults, **values}
    base = path_of("topics", topic)
    intro = ""
    if source:
        intro = f"The fields are those of the record at {source}. It stays as it is; a new one is appended."
    return Form(
        title=f"{'Edit and resend' if source else 'Produce'}: {topic}",
        path=f"{base}/produce",
        back=f"{base}/records",
        section="Topics",
        trail=(*TRAIL, (topic, f"{base}/records")),
        intro=intro,
        fields=record_fields(given),
    )


def record_fields(given: Fields) -> list[Field]:
    """Return the fields of a record."""
    return [
        Field("key", "Key", value=given.get("key", ""), is_wide=True),
        Field("key_is", "The key is", "select", given.get("key_is", "text"), options=_ENCODINGS),
        Field(
            "partition",
            "Partition",
            value=given.get("partition", ""),
            hint="Empty lets the key decide.",
        ),
        Field("value", "Value", "area", given.get("value", ""), is_wide=True, rows=10),
        Field("value_is", "The value is", "select", given.get("value_is", "text"), options=_ENCODINGS),
        Field(
            "headers",
            "Headers",
            "area",
            given.get("headers", ""),
            "One name=value a line; name:base64=… for bytes, a name alone for null.",
            is_wide=True,
            rows=3,
        ),
    ]


async def record_at(visit: Visit, topic: str, place: str) -> Record:
    """Return the record at ``PARTITION:OFFSET``.

    Raises:
        HttpError: the text has another form (422), or there is no record (404).
    """
    number, _, offset = place.partition(":")
    if not (f"{number}{offset}".isascii() and number.isdigit() and len(number) < 10 and offset.isdigit()):
        raise HttpError(422, f"from={place[:40]!r} is no PARTITION:OFFSET")
    found = await read_one(visit.caller, topic, int(number), int(offset[:19]))
    if found is None:
        raise HttpError(404, f"offset {offset} of {topic}-{number} holds no record")
    return found


def fields_of(record: Record) -> dict[str, str]:
    """Return a record as the fields of the form."""
    key, key_is = _encoded(record.key)
    value, value_is = _encoded(record.value)
    lines = []
    for name, content in record.headers:
        text, kind = _encoded(content)
        plain = kind == "text" and "\n" not in text and text == text.strip()
        if kind == "null":
            lines.append(name)
        elif plain:
            lines.append(f"{name}={text}")
        else:
            lines.append(f"{name}:base64={base64.b64encode(content or b'').decode()}")
    return {
        "key": key,
        "key_is": key_is,
        "value": value,
        "value_is": value_is,
        "partition": str(record.partition),
        "headers": "\n".join(lines),
    }


def _encoded(data: bytes | None) -> tuple[str, str]:
    if data is None:
        return "", "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"
    # A form's field keeps neither carriage returns nor other control characters.
    if any(each < " " and each not in "\t\n" for each in text):
        return base64.b64encode(data).decode(), "base64"
    return text, "text"


def _decoded(values: Fields, name: str, label: str) -> bytes | None:
    text, kind = values.get(name, ""), values.get(f"{name}_is", "text")
    if kind == "null":
        return None
    data = text.encode() if kind == "text" else _from_base64(text, name, label)
    if len(data) > _VALUE_BYTES_MAX:
        raise FormError(f"{label}: {len(data)} bytes are more than {_VALUE_BYTES_MAX}", name)
    return data


def _from_base64(text: str, name: str, label: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise FormError(f"{label}: it is not Base64", name) from None


def headers_of(text: str) -> list[tuple[str, bytes | None]]:
    """Read headers, one a line.

    Raises:
        FormError: a line has no name, or is not Base64 where it says so.
    """
    headers: list[tuple[str, bytes | None]] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        name, equals, content = line.partition("=")
        if not name.strip():
            raise FormError(f"Headers: {line[:80]!r} has no name", "headers")
        if not equals:
            headers.append((name.strip(), None))
        elif name.endswith(":base64"):
            headers.append(
                (name.removesuffix(":base64").strip(), _from_base64(content, "headers", "Headers"))
            )
        else:
            headers.append((name.strip(), content.encode()))
    return headers


def entered_record(values: Fields) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Return key, value and headers of what was entered; an empty text is no key.

    Raises:
        FormError: a field is not what it is said to be, or too large.
    """
    key, value = _decoded(values, "key", "Key"), _decoded(values, "value", "Value")
    return key or None, value, headers_of(values.get("headers", ""))


async def _plan_produce(visit: Visit, values: Fields) -> Change:
    topic = visit.request.path_params["topic"]
    key, value, headers = entered_record(values)
    logs = await log_ranges(visit.caller, topic)
    partition = None
    if values.get("partition", "").strip():
        partition = integer_of(values, "partition", "Partition", 0, max(logs, default=0))
    producer = await visit.caller.producer()

    async def perform() -> str:
        future = await producer.send(topic, value, key, headers, partition=partition)
        sent: RecordMetadata = await future
        return f"The record is in {topic}-{sent.partition} at offset {sent.offset}."

    line = {"key": None if key is None else key.decode(errors="replace")}
    line["value"] = None if value is None else value.decode(errors="replace")
    shown = json.dumps(line, ensure_ascii=False)
    base = path_of("topics", topic)
    return Change(
        question=f"Append this record to {topic}?",
        button="Produce",
        command=f"echo {command_lines.quoted(shown)} | "
        + command_lines.line("produce", topic, options={"json-lines": True, "partition": partition}),
        perform=perform,
        done=f"{base}/records",
        back=f"{base}/records",
        operation="Produce",
        resource=f"Topic:{topic}",
        facts=[
            ("Partition", "by the key" if partition is None else str(partition)),
            ("Key", "null" if key is None else values.get("key", "")),
            ("Value", "null" if value is None else values.get("value", "")[:2_000]),
            ("Headers", values.get("headers", "") or "none"),
        ],
        warning="A null value is a tombstone: a compacted topic forgets the key." if value is None else "",
    )


async def _show_replay(visit: Visit, values: Fields) -> Form:
    topic = visit.request.path_params["topic"]
    base = path_of("topics", topic)
    return Form(
        title=f"Replay records of {topic}",
        path=f"{base}/replay",
        back=f"{base}/records",
        section="Topics",
        trail=(*TRAIL, (topic, f"{base}/records")),
        intro="Records are appended to a topic again with key, value and headers, in their order.",
        fields=[
            Field("partition", "Partition", "number", values.get("partition", "0"), is_required=True),
            Field("to", "To topic", value=values.get("to", topic), is_required=True),
            Field("first", "From offset", "number", values.get("first", ""), is_required=True),
            Field("last", "To offset", "number", values.get("last", ""), "This one too.", is_required=True),
        ],
    )


async def _plan_replay(visit: Visit, values: Fields) -> Change:
    topic = visit.request.path_params["topic"]
    target = topic_name_of(values, "to")
    logs = await log_ranges(visit.caller, topic)
    number = integer_of(values, "partition", "Partition", 0, max(logs, default=0))
    begin, end = logs[number]
    if begin == end:
        raise FormError(f"{topic}-{number} has no records")
    first = integer_of(values, "first", "From offset", begin, end - 1)
    last = integer_of(values, "last", "To offset", first, end - 1)
    if last - first >= REPLAY_MAX:
        raise FormError(
            f"To offset: {count_text(last - first + 1)} offsets are more than {count_text(REPLAY_MAX)}; "
            "replay them in parts, or with kalda mirror",
            "last",
        )
    await log_ranges(visit.caller, target)  # it exists, and the visitor may see it
    producer = await visit.caller.producer()

    async def perform() -> str:
        count = 0
        for start in range(first, last + 1, _REPLAY_STEP):
            stop = min(last + 1, start + _REPLAY_STEP)
            records = await read_ranges(visit.caller, topic, {number: (start, stop)})
            sent = [
                await producer.send(
                    target, each.value, each.key, list(each.headers), timestamp_ms=max(each.timestamp_ms, 0)
                )
                for each in records
            ]
            for future in sent:
                await future
            count += len(sent)
        return f"Appended {counted(count, 'record')} to {target}."

    base = path_of("topics", topic)
    consume = command_lines.line(
        "consume",
        topic,
        options={"partition": number, "offset": first, "max-messages": last - first + 1, "json": True},
    )
    return Change(
        question=f"Append up to {counted(last - first + 1, 'record')} of {topic}-{number} to {target}?",
        button="Replay",
        command=f"{consume} | {command_lines.line('produce', target, options={'json-lines': True})}",
        perform=perform,
        done=f"{path_of('topics', target)}/records",
        back=f"{base}/records",
        operation="Produce",
        resource=f"Topic:{target}",
        facts=[("From", f"{topic}-{number}, offsets {first} to {last}"), ("To", target)],
        warning="The topic itself: its readers see these records a second time." if target == topic else "",
    )
