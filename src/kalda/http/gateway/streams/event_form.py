"""Renders the events of a stream, as server-sent events or as messages of a WebSocket."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kalda.common.overriding import override
from kalda.http.decoding import SchemaDecoders
from kalda.http.gateway.streams.conditions import Conditions
from kalda.http.gateway.streams.event_ids import format_event_id
from kalda.http.gateway.streams.recent_records import BytesRecord
from kalda.http.gateway.streams.rendering import HEARTBEAT, position_event, server_sent_event


class RenderRecord(Protocol):
    """Returns a record as JSON on one line."""

    def __call__(self, record: BytesRecord) -> str:
        """Return the record."""
        ...


@dataclass(frozen=True, slots=True)
class EventForm:
    """Which records are events, and what these look like. Forms of equal conditions and render are equal."""

    conditions: Conditions
    render: RenderRecord
    schemas: SchemaDecoders | None = None
    """What has to be ready before records are rendered."""

    heartbeat = HEARTBEAT

    def event(self, record: BytesRecord, position: Mapping[int, int]) -> bytes | None:
        """Return the event of a record with the position behind it; None if the conditions leave it out."""
        if self.conditions and not self.conditions.match(record.key, record.value, record.headers):
            return None
        return server_sent_event(format_event_id(position), self.render(record))

    async def prepare(self, records: Iterable[BytesRecord]) -> None:
        """Load the schemas that `event` needs for records."""
        if self.schemas is not None:
            await self.schemas.prepare(records)

    def is_ready(self, records: Iterable[BytesRecord]) -> bool:
        """Return whether `event` has all it needs for records."""
        return self.schemas is None or self.schemas.is_ready(records)

    def chunk(self, events: Sequence[bytes]) -> bytes:
        """Return events as one write."""
        return b"".join(events)

    def position(self, position: Mapping[int, int]) -> bytes:
        """Return an event that has only the position."""
        return position_event(format_event_id(position))

    def named(self, name: str, position: Mapping[int, int] | None, data: Mapping[str, object]) -> bytes:
        """Return an event of another name than ``message``, such as ``gap`` or ``end``."""
        event_id = None if position is None else format_event_id(position)
        return server_sent_event(event_id, json.dumps(data), name)


@dataclass(frozen=True, slots=True)
class MessageForm(EventForm):
    """The form for WebSockets: each message is a JSON array of events ``{"id": …, "record": …}``."""

    heartbeat = b"[]"

    @override
    def event(self, record: BytesRecord, position: Mapping[int, int]) -> bytes | None:
        if self.conditions and not self.conditions.match(record.key, record.value, record.headers):
            return None
        return f'{{"id":"{format_event_id(position)}","record":{self.render(record)}}}'.encode()

    @override
    def chunk(self, events: Sequence[bytes]) -> bytes:
        return b"[" + b",".join(events) + b"]"

    @override
    def position(self, position: Mapping[int, int]) -> bytes:
        return f'[{{"id":"{format_event_id(position)}"}}]'.encode()

    @override
    def named(self, name: str, position: Mapping[int, int] | None, data: Mapping[str, object]) -> bytes:
        event_id = {} if position is None else {"id": format_event_id(position)}
        return json.dumps([{**event_id, "event": name, "data": data}]).encode()


OPENING_RETRY_MS: Final = (500, 1_500)
"""The range of the reconnection time that a stream names: readers of an instance that ended come back one
after the other."""
