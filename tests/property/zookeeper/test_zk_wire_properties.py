"""The client protocol: what is written is read back, and what is not a request raises our error."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.zookeeper.protocol import responses
from kalda.zookeeper.protocol.framing import FrameError, FrameReader
from kalda.zookeeper.protocol.jute import JuteError, Reader
from kalda.zookeeper.protocol.op_codes import OpCode
from kalda.zookeeper.protocol.requests import (
    WORLD_ALL,
    AclEntry,
    AuthRequest,
    ConnectRequest,
    CreateRequest,
    EmptyRequest,
    MultiRequest,
    PathNumberRequest,
    PathRequest,
    PathVersionRequest,
    PathWatchRequest,
    ReconfigRequest,
    RequestRecord,
    SaslRequest,
    SetAclRequest,
    SetDataRequest,
    SetWatchesRequest,
    read_connect_request,
    read_header,
    read_record,
)
from tests.zookeeper_requests import frame, write_connect_request, write_request

INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(max_size=20)
BUFFERS = st.binary(max_size=40)
ACLS = st.just(WORLD_ALL) | st.lists(st.builds(AclEntry, INTS, TEXTS, TEXTS), max_size=3).map(tuple)
PATHS = st.lists(TEXTS, max_size=3).map(tuple)

CREATES = st.builds(CreateRequest, TEXTS, st.none() | BUFFERS, ACLS, INTS, st.just(-1))
TTL_CREATES = st.builds(CreateRequest, TEXTS, st.none() | BUFFERS, ACLS, INTS, LONGS)
SET_DATA = st.builds(SetDataRequest, TEXTS, st.none() | BUFFERS, INTS)
PATH_WATCHES = st.builds(PathWatchRequest, TEXTS, st.booleans())
PATH_VERSIONS = st.builds(PathVersionRequest, TEXTS, INTS)
PATH_NUMBERS = st.builds(PathNumberRequest, TEXTS, INTS)
PATHS_ALONE = st.builds(PathRequest, TEXTS)
EMPTY = st.just(EmptyRequest())
MULTIS = st.builds(
    MultiRequest,
    st.lists(
        st.tuples(st.sampled_from([OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER]), CREATES)
        | st.tuples(st.just(OpCode.CREATE_TTL), TTL_CREATES)
        | st.tuples(st.sampled_from([OpCode.DELETE, OpCode.CHECK]), PATH_VERSIONS)
        | st.tuples(st.just(OpCode.SET_DATA), SET_DATA),
        max_size=4,
    ).map(tuple),
)
MULTI_READS = st.builds(
    MultiRequest,
    st.lists(
        st.tuples(st.sampled_from([OpCode.GET_DATA, OpCode.GET_CHILDREN]), PATH_WATCHES), max_size=4
    ).map(tuple),
)

RECORDS: dict[OpCode, st.SearchStrategy[RequestRecord]] = {
    OpCode.CREATE: CREATES,
    OpCode.CREATE2: CREATES,
    OpCode.CREATE_CONTAINER: CREATES,
    OpCode.CREATE_TTL: TTL_CREATES,
    OpCode.DELETE: PATH_VERSIONS,
    OpCode.EXISTS: PATH_WATCHES,
    OpCode.GET_DATA: PATH_WATCHES,
    OpCode.SET_DATA: SET_DATA,
    OpCode.GET_ACL: PATHS_ALONE,
    OpCode.SET_ACL: st.builds(SetAclRequest, TEXTS, ACLS, INTS),
    OpCode.GET_CHILDREN: PATH_WATCHES,
    OpCode.GET_CHILDREN2: PATH_WATCHES,
    OpCode.SYNC: PATHS_ALONE,
    OpCode.PING: EMPTY,
    OpCode.CHECK: PATH_VERSIONS,
    OpCode.MULTI: MULTIS,
    OpCode.MULTI_READ: MULTI_READS,
    OpCode.RECONFIG: st.builds(ReconfigRequest, TEXTS, TEXTS, TEXTS, LONGS),
    OpCode.CHECK_WATCHES: PATH_NUMBERS,
    OpCode.REMOVE_WATCHES: PATH_NUMBERS,
    OpCode.AUTH: st.builds(AuthRequest, INTS, TEXTS, BUFFERS),
    OpCode.SASL: st.builds(SaslRequest, BUFFERS),
    OpCode.SET_WATCHES: st.builds(SetWatchesRequest, LONGS, PATHS, PATHS, PATHS, st.just(()), st.just(())),
    OpCode.SET_WATCHES2: st.builds(SetWatchesRequest, LONGS, PATHS, PATHS, PATHS, PATHS, PATHS),
    OpCode.ADD_WATCH: PATH_NUMBERS,
    OpCode.GET_EPHEMERALS: PATHS_ALONE,
    OpCode.GET_ALL_CHILDREN_NUMBER: PATHS_ALONE,
    OpCode.WHO_AM_I: EMPTY,
    OpCode.CLOSE_SESSION: EMPTY,
}

REQUESTS = st.sampled_from(list(OpCode)).flatmap(lambda code: st.tuples(st.just(code), RECORDS[code]))


def _read(op_code: OpCode, sent: bytes) -> RequestRecord:
    read_header(sent)
    return read_record(op_code, sent)


@given(xid=INTS, request=REQUESTS)
def test_requests_are_read_back(xid: int, request: tuple[OpCode, RequestRecord]) -> None:
    op_code, record = request
    sent = write_request(xid, op_code, record)
    assert (xid, op_code) == read_header(sent)
    assert record == read_record(op_code, sent)


@given(xid=INTS, request=REQUESTS)
def test_requests_cut_short_raise_our_error(xid: int, request: tuple[OpCode, RequestRecord]) -> None:
    op_code, record = request
    sent = write_request(xid, op_code, record)
    for size in range(len(sent)):
        with pytest.raises(JuteError):
            _read(op_code, sent[:size])


@given(op_code=st.sampled_from(list(OpCode)), junk=st.binary(max_size=200))
def test_junk_is_read_or_raises_our_error(op_code: OpCode, junk: bytes) -> None:
    with contextlib.suppress(JuteError):
        _read(op_code, junk)
    with contextlib.suppress(JuteError):
        read_connect_request(junk)


@given(request=st.builds(ConnectRequest, INTS, LONGS, INTS, LONGS, BUFFERS, st.none() | st.booleans()))
def test_connect_requests_are_read_back(request: ConnectRequest) -> None:
    """Without the byte for read-only, too, as clients before 3.4 send them."""
    sent = write_connect_request(request)
    assert request == read_connect_request(sent)
    mandatory = len(sent) - (request.read_only is not None)
    for size in range(mandatory):
        with pytest.raises(JuteError):
            read_connect_request(sent[:size])


@given(payloads=st.lists(st.binary(max_size=60), max_size=8), cuts=st.lists(st.integers(1, 30), max_size=20))
def test_frames_arrive_however_the_bytes_are_cut(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, payloads))
    reader = FrameReader(60)
    found: list[bytes] = []
    while stream:
        size = cuts.pop() if cuts else len(stream)
        reader.feed(stream[:size])
        stream = stream[size:]
        while (payload := reader.next_frame()) is not None:
            found.append(payload)
    assert found == payloads
    assert reader.next_frame() is None


@given(length=st.integers(-(2**31), -1) | st.integers(61, 2**31 - 1), before=st.binary(max_size=60))
def test_frames_above_the_limit_are_refused_before_they_arrive(length: int, before: bytes) -> None:
    """A length that cannot be meant must not make the server wait, or keep, what follows."""
    reader = FrameReader(60)
    reader.feed(frame(before) + length.to_bytes(4, "big", signed=True))
    assert before == reader.next_frame()
    with pytest.raises(FrameError, match=r"jute\.maxbuffer"):
        reader.next_frame()


@given(xid=INTS, zxid=LONGS, error=INTS, body=BUFFERS)
def test_replies_carry_their_header(xid: int, zxid: int, error: int, body: bytes) -> None:
    reader = FrameReader(2**20)
    reader.feed(responses.reply(xid, zxid, error, body) + responses.reply_header(xid, zxid, len(body)) + body)
    first, second = reader.next_frame(), reader.next_frame()
    assert first is not None
    assert second is not None
    assert (xid, zxid, error) == responses.HEADER.unpack_from(first)
    assert first[responses.HEADER.size :] == body == second[responses.HEADER.size :]


@given(kind=st.integers(1, 4), path=TEXTS, zxid=LONGS)
def test_events_are_framed(kind: int, path: str, zxid: int) -> None:
    reader = FrameReader(2**20)
    reader.feed(responses.event(kind, path, zxid))
    sent = reader.next_frame()
    assert sent is not None
    assert (-1, zxid, 0) == responses.HEADER.unpack_from(sent)
    record = Reader(sent, responses.HEADER.size)
    assert (kind, 3, path) == (record.int32(), record.int32(), record.text())
    assert 0 == record.remaining
