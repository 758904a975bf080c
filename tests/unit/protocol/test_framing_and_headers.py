"""Frames and headers: every bound, nothing but ProtocolError for junk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.protocol import registry
from kalda.protocol.framing import frame
from kalda.protocol.headers import (
    RequestHeader,
    read_request_header,
    read_response_header,
    request_header,
)
from kalda.protocol.protocol_errors import MessageError, ProtocolError


def test_frame_joins_its_chunks_behind_their_size() -> None:
    assert b"\0\0\0\3abc" == frame([b"a", b"bc"])


@pytest.mark.parametrize("api_key", registry.declared_keys())
def test_request_header_round_trips_in_every_version(api_key: int) -> None:
    versions = registry.spec(api_key).versions
    for version in range(versions.lowest, versions.highest + 1):
        header_version = registry.request_header_version(api_key, version)
        header = RequestHeader(api_key, version, 7, "client-é" if header_version else None)
        data = request_header(header, header_version)
        # Version 0 is told from the others behind its end, where its API's body always has 4 bytes.
        assert read_request_header(data + bytes(4)) == (header, len(data))
        for size in range(len(data)):
            with pytest.raises(ProtocolError):
                read_request_header(data[:size])


def test_request_header_of_an_unknown_api_can_be_read() -> None:
    """The dispatcher needs the key to refuse the request."""
    header = RequestHeader(999, 3, 7, "c")
    assert (header, 11) == read_request_header(request_header(header, 1))


def test_unknown_tagged_fields_of_headers_are_skipped() -> None:
    data = request_header(RequestHeader(3, 12, 7, None), 1) + b"\x01\x05\x03abc"
    assert len(data) == read_request_header(data)[1]
    assert (7, 10) == read_response_header(b"\0\0\0\7\x01\x05\x03abc", 1)
    with pytest.raises(ProtocolError, match="over the end"):
        read_request_header(data[:-1])
    with pytest.raises(ProtocolError, match="over the end"):
        read_response_header(b"\0\0\0\7\x01\x05\x04abc", 1)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0\3\0\1\0\0\0\7\xff\xfe", "length -2"),
        (b"\0\3\0\1\0\0\0\7\0\2\xff\xff", "UTF-8"),
        (b"\0\3\0\1\0\0\0\7\x7f\xffx", "over the end"),
        (b"\0\3\0\x0c\0\0\0\7\xff\xff\xff\xff\xff\xff\xff\xff", "5 bytes"),
    ],
)
def test_a_broken_request_header_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        read_request_header(data)


@given(st.binary(max_size=30))
def test_junk_headers_raise_our_error_only(junk: bytes) -> None:
    for read in (read_request_header, lambda data: read_response_header(data, 1)):
        try:
            _, position = read(junk)
        except ProtocolError:
            continue
        assert position <= len(junk)


@pytest.mark.parametrize(
    "header",
    [
        RequestHeader(40_000, 0, 0, None),
        RequestHeader(3, 0, 1 << 31, None),
        RequestHeader(3, 0, 0, "x" * 32_768),
    ],
)
def test_a_header_that_cannot_be_written_is_our_error(header: RequestHeader) -> None:
    with pytest.raises(MessageError):
        request_header(header, 1)
