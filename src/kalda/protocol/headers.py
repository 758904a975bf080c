"""Reads and writes request headers 0-2 and response headers 0-1.

They are coded by hand, because one is read for every request and two rules apply to headers only: the client
id is never compact, even in the flexible version 2; and the version of a header is not in the header, but
follows from the API key and version at its beginning.
"""

import struct
from typing import Final, NamedTuple

from kalda.protocol.protocol_errors import MessageError, ProtocolError
from kalda.protocol.registry import WITHOUT_CLIENT_ID, flexible_from
from kalda.protocol.wire_format import Buffer, skip_tagged_fields

_FIXED: Final = struct.Struct(">hhih")
_WITHOUT_CLIENT_ID: Final = struct.Struct(">hhi")
_CORRELATION_ID: Final = struct.Struct(">i")
_TAGGED_RESPONSE: Final = struct.Struct(">ix")


class RequestHeader(NamedTuple):
    """The header of a request; the response has only the correlation id."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_header(buffer: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """Read the header of a request; returns it with the position of the body.

    The header of an API that is not declared is read as version 1: its body will not be read anyway.

    Raises:
        ProtocolError: the header is truncated or its client id is not UTF-8.
    """
    try:
        api_key, api_version, correlation_id, length = _FIXED.unpack_from(buffer, position)
        if (api_key, api_version) in WITHOUT_CLIENT_ID:
            # What was read as the client id's length is the first half of the body, which is 4 bytes.
            return RequestHeader(api_key, 0, correlation_id, None), position + _WITHOUT_CLIENT_ID.size
        position += _FIXED.size
        client_id = None
        if length >= 0:
            end = position + length
            if end > len(buffer):
                raise ProtocolError(f"request header: client id of {length} bytes runs over the end")
            client_id = str(buffer[position:end], "utf-8")
            position = end
        elif length != -1:
            raise ProtocolError(f"request header: client id has length {length}")
        if api_version >= flexible_from(api_key):
            position, _ = skip_tagged_fields(buffer, position, len(buffer))
    except (struct.error, IndexError):
        raise ProtocolError(f"request header: truncated at {len(buffer)} bytes") from None
    except UnicodeDecodeError as error:
        raise ProtocolError(f"request header: client id is not UTF-8: {error}") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def request_header(header: RequestHeader, header_version: int) -> bytes:
    """Write the header of a request.

    Raises:
        MessageError: a value is out of its range, or the client id is too long.
    """
    try:
        if header_version == 0:
            return _WITHOUT_CLIENT_ID.pack(header.api_key, header.api_version, header.correlation_id)
        client_id = None if header.client_id is None else header.client_id.encode()
        length = -1 if client_id is None else len(client_id)
        fixed = _FIXED.pack(header.api_key, header.api_version, header.correlation_id, length)
    except (struct.error, UnicodeEncodeError) as error:
        raise MessageError(f"{header} cannot be written: {error}") from None
    return fixed + (client_id or b"") + (b"\0" if header_version == 2 else b"")


def response_header(correlation_id: int, header_version: int) -> bytes:
    """Write the header of a response; version 1 ends in an empty tagged section."""
    return (_TAGGED_RESPONSE if header_version else _CORRELATION_ID).pack(correlation_id)


def read_response_header(buffer: Buffer, header_version: int, position: int = 0) -> tuple[int, int]:
    """Read the header of a response; returns the correlation id and the position of the body.

    Raises:
        ProtocolError: the header is truncated.
    """
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buffer, position)
        position += _CORRELATION_ID.size
        if header_version:
            # No known response has tagged fields in its header: their count is one zero byte.
            has_tags = buffer[position] != 0
            position = skip_tagged_fields(buffer, position, len(buffer))[0] if has_tags else position + 1
    except (struct.error, IndexError):
        raise ProtocolError(f"response header: truncated at {len(buffer)} bytes") from None
    return correlation_id, position
