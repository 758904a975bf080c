"""What a follower reads of a Fetch response must be what the general codec reads."""

import contextlib
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.protocol import codec
from kalda.protocol.fast.fetch_response import HIGHEST_VERSION, LOWEST_VERSION, parse_fetch_response
from kalda.protocol.messages.fetch import FetchResponse
from kalda.protocol.protocol_errors import ProtocolError
from tests.property.protocol.declared_messages import structs

VERSIONS = st.integers(LOWEST_VERSION, HIGHEST_VERSION)


@st.composite
def responses(draw: st.DrawFn) -> tuple[FetchResponse, int]:
    version = draw(VERSIONS)
    return draw(structs(FetchResponse, version)), version


@given(responses(), st.binary(max_size=5), st.binary(max_size=5))
def test_responses_are_read_as_the_general_codec_reads_them(
    drawn: tuple[FetchResponse, int], before: bytes, behind: bytes
) -> None:
    message, version = drawn
    body = codec.encode(message, version)
    fields = parse_fetch_response(memoryview(before + body + behind), len(before))
    assert (message.throttle_time_ms, message.error_code, message.session_id) == (
        fields.throttle_time_ms,
        fields.error_code,
        fields.session_id,
    )
    expected = [
        (
            topic.topic_id.bytes,
            part.partition_index,
            part.error_code,
            part.high_watermark,
            part.log_start_offset,
            None
            if (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (-1, -1)
            else (part.diverging_epoch.epoch, part.diverging_epoch.end_offset),
            bytes(cast("bytes", part.records or b"")) or None,
        )
        for topic in message.responses
        for part in topic.partitions
    ]
    assert expected == [
        (*each[:-1], None if each.records is None else bytes(each.records)) for each in fields.partitions
    ]


@given(responses(), st.data())
def test_a_cut_response_is_a_protocol_error(drawn: tuple[FetchResponse, int], data: st.DataObject) -> None:
    message, version = drawn
    body = codec.encode(message, version)
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(ProtocolError):
        parse_fetch_response(memoryview(body)[:cut])


@given(st.binary(max_size=200))
def test_junk_is_read_or_refused_but_never_crashes(junk: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        parse_fetch_response(memoryview(junk))
