"""Encodes the response messages of handlers as reply frames: at once, or in steps if they are long."""

from collections.abc import Iterator
from typing import Any, Final

from kalda.broker.requests.api import RawReply, RequestContext
from kalda.common.turns import Steps
from kalda.net.reply import Chunk
from kalda.protocol import codec
from kalda.protocol.framing import SIZE
from kalda.protocol.headers import response_header
from kalda.protocol.protocol_errors import MessageError
from kalda.protocol.schema import Struct
from kalda.protocol.wire_format import STRING_BYTES_MAX

_LONG_ELEMENTS: Final = 512
"""Elements of the arrays of a response that are encoded at once, in 0.2 ms or so."""

_ERROR_MESSAGE: Final = "error_message"
_MESSAGE_LENGTH_MAX: Final = 1000


def encode_reply(context: RequestContext, response: Any) -> RawReply:
    """Return the reply frame of a response message: size, header, body.

    Raises:
        MessageError: a field of the response does not exist in the request's version.

    Texts that are longer than a string may be are cut: error messages quote what a client sent.
    """
    version = context.api_version
    try:
        chunks: list[Any] = codec.encode_chunks(response, version)
    except MessageError:
        if not any(list(_make_sendable(response))):
            raise
        chunks = codec.encode_chunks(response, version)
    return _framed(context, chunks)


def encode_reply_in_steps(context: RequestContext, response: Any) -> Steps[RawReply]:
    """Do what `encode_reply` does in steps."""
    version = context.api_version
    try:
        chunks: list[Any] = yield from codec.encode_in_steps(response, version)
    except MessageError:
        is_changed = False
        for is_cut in _make_sendable(response):
            is_changed |= is_cut
            yield
        if not is_changed:
            raise
        chunks = yield from codec.encode_in_steps(response, version)
    return _framed(context, chunks)


def _framed(context: RequestContext, chunks: list[Any]) -> RawReply:
    has_tags = context.api_version >= context.api.tagged_headers_from
    header = response_header(context.correlation_id, 1 if has_tags else 0)
    if len(chunks) == 1 and isinstance(chunks[0], bytes):
        return SIZE.pack(len(header) + len(chunks[0])) + header + chunks[0]
    size = len(header) + sum(chunk.size if hasattr(chunk, "size") else len(chunk) for chunk in chunks)
    reply: list[Chunk] = [SIZE.pack(size) + header]
    reply.extend(chunks)
    return reply


def is_long(response: object) -> bool:
    """Return whether encoding a response takes longer than a turn; a small request may name a large group."""
    count = 0
    messages = [response]
    while messages:
        message = messages.pop()
        assert isinstance(message, Struct), f"{message!r:.100} is no part of a response"
        for field in message.FIELDS:
            value = getattr(message, field.name)
            if isinstance(value, Struct):
                messages.append(value)
            elif isinstance(value, list):
                count += len(value)
                if count > _LONG_ELEMENTS:
                    return True
                if value and isinstance(value[0], Struct):
                    messages += value
    return False


def _make_sendable(message: Struct) -> Iterator[bool]:
    """Cut texts in a response that are too long; yield after each struct whether there were any.

    Error messages quote what a client sent. Other texts are from znodes that were written by hand, and one of
    them must not end the response for all others: Metadata names every topic.
    """
    is_changed = False
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if isinstance(value, str):
            sendable = _sendable_text(value, _MESSAGE_LENGTH_MAX if field.name == _ERROR_MESSAGE else None)
            if sendable != value:
                setattr(message, field.name, sendable)
                is_changed = True
            continue
        for index, each in enumerate(value if isinstance(value, list) else (value,)):
            if isinstance(each, Struct):
                yield from _make_sendable(each)
            elif isinstance(each, str) and each != (sendable := _sendable_text(each, None)):
                value[index] = sendable
                is_changed = True
    yield is_changed


def _sendable_text(text: str, length_max: int | None) -> str:
    if length_max is not None and len(text) > length_max:
        text = text[:length_max] + "…"
    data = text.encode(errors="replace")
    if len(data) <= STRING_BYTES_MAX:
        # Half of a surrogate pair becomes a question mark, as in Java.
        return data.decode()
    return data[: STRING_BYTES_MAX - 3].decode(errors="ignore") + "…"
