"""What a follower reads of a Fetch response must be what the general codec reads."""

import contextlib
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.protocol import codec
from kalda.protocol.fast.fetch_response import (
    HIGHEST_VERSION,
    LOWEST_VERSION,
    FetchResponseFields,
    _parse,
    parse_fetch_response,
)
from kalda.protocol.fetch_session import TOPIC_IDS_FROM
from kalda.protocol.messages.fetch import EpochEndOffset, FetchResponse, LeaderIdAndEpoch, SnapshotId
from kalda.protocol.protocol_errors import ProtocolError
from tests.property.protocol.declared_messages import structs

VERSIONS = st.integers(LOWEST_VERSION, HIGHEST_VERSION)


@st.composite
def responses(draw: st.DrawFn) -> tuple[FetchResponse, int]:
    version = draw(VERSIONS)
    message = draw(structs(FetchResponse, version))
    if draw(st.booleans()):
        # Tagged fields and aborted transactions are rare, and other code reads a response without them.
        message.node_endpoints = []
        for topic in message.responses:
            for part in topic.partitions:
                part.diverging_epoch, part.current_leader = EpochEndOffset(), LeaderIdAndEpoch()
                part.snapshot_id, part.aborted_transactions = SnapshotId(), []
    return message, version


@given(responses(), st.binary(max_size=5), st.binary(max_size=5))
def test_responses_are_read_as_the_general_codec_reads_them(
    drawn: tuple[FetchResponse, int], before: bytes, behind: bytes
) -> None:
    message, version = drawn
    body = codec.encode(message, version)
    fields = parse_fetch_response(memoryview(before + body + behind), len(before), version)
    assert (message.throttle_time_ms, message.error_code, message.session_id) == (
        fields.throttle_time_ms,
        fields.error_code,
        fields.session_id,
    )
    expected = [
        (
            topic.topic_id.bytes if version >= TOPIC_IDS_FROM else topic.topic.encode(),
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
        parse_fetch_response(memoryview(body)[:cut], version=version)


@given(st.binary(max_size=200), VERSIONS)
def test_junk_is_read_or_refused_but_never_crashes(junk: bytes, version: int) -> None:
    with contextlib.suppress(ProtocolError):
        parse_fetch_response(memoryview(junk), version=version)


@given(responses(), st.lists(st.tuples(st.integers(0, 150), st.integers(0, 255)), max_size=3))
def test_altered_responses_are_read_as_the_parser_of_all_responses_reads_them(
    drawn: tuple[FetchResponse, int], altered: list[tuple[int, int]]
) -> None:
    """The parser of the usual response accepts and refuses nothing that the other one does not."""
    message, version = drawn
    frame = bytearray(codec.encode(message, version))
    for position, byte in altered:
        frame[position % len(frame)] = byte

    def read(parse: Callable[[memoryview], FetchResponseFields]) -> FetchResponseFields | None:
        try:
            return parse(memoryview(frame))
        except ProtocolError:
            return None

    by_id = version >= TOPIC_IDS_FROM
    assert read(lambda view: _parse(view, 0, by_id)) == read(
        lambda view: parse_fetch_response(view, version=version)
    )
