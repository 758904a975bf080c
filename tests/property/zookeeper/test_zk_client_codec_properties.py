"""The client's side of the protocol: the server reads what it writes, and it reads what the server writes."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.zookeeper.client.calls import Call
from kalda.zookeeper.client.session_stream import (
    LoginRefusedError,
    Session,
    SessionOverError,
    SessionStream,
)
from kalda.zookeeper.port import EventType
from kalda.zookeeper.protocol import client_requests as encode
from kalda.zookeeper.protocol import client_responses as decode
from kalda.zookeeper.protocol import responses
from kalda.zookeeper.protocol.client_requests import Request
from kalda.zookeeper.protocol.client_responses import MultiError
from kalda.zookeeper.protocol.jute import INT, JuteError, Reader
from kalda.zookeeper.protocol.op_codes import OpCode
from kalda.zookeeper.protocol.requests import (
    WORLD_ALL,
    AclEntry,
    CreateRequest,
    MultiRequest,
    PathVersionRequest,
    PathWatchRequest,
    RequestRecord,
    SaslRequest,
    SetAclRequest,
    SetDataRequest,
    read_header,
    read_record,
)

INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(max_size=20)
DATA = st.binary(max_size=40)
ACLS = st.just(WORLD_ALL) | st.lists(st.builds(AclEntry, INTS, TEXTS, TEXTS), max_size=3).map(tuple)
STATS = st.tuples(LONGS, LONGS, LONGS, LONGS, INTS, INTS, INTS, LONGS, INTS, INTS, LONGS)

CREATES = st.builds(
    lambda path, data, acl, ephemeral, sequential: (
        encode.create(path, data, acl, ephemeral=ephemeral, sequential=sequential),
        CreateRequest(path, data, acl, ephemeral + 2 * sequential),
    ),
    *(TEXTS, DATA, ACLS, st.booleans(), st.booleans()),
)
SET_DATA = st.builds(
    lambda *fields: (encode.set_data(*fields), SetDataRequest(*fields)), TEXTS, st.none() | DATA, INTS
)
DELETES = st.builds(lambda *fields: (encode.delete(*fields), PathVersionRequest(*fields)), TEXTS, INTS)
CHECKS = st.builds(lambda *fields: (encode.check(*fields), PathVersionRequest(*fields)), TEXTS, INTS)
WRITES = CREATES | SET_DATA | DELETES | CHECKS


def _reads(write: Callable[..., Request]) -> st.SearchStrategy[tuple[Request, RequestRecord]]:
    return st.builds(
        lambda path, watch: (write(path, watch=watch), PathWatchRequest(path, watch)), TEXTS, st.booleans()
    )


REQUESTS: st.SearchStrategy[tuple[Request, RequestRecord]] = st.one_of(
    WRITES,
    *map(_reads, (encode.exists, encode.get_data, encode.get_children)),
    st.builds(lambda *fields: (encode.set_acl(*fields), SetAclRequest(*fields)), TEXTS, ACLS, INTS),
    st.builds(lambda token: (encode.sasl(token), SaslRequest(token)), DATA),
    st.lists(WRITES, max_size=4).map(
        lambda parts: (
            encode.multi(request for request, _ in parts),
            MultiRequest(tuple((request.op_code, record) for request, record in parts)),
        )
    ),
)


@given(xid=INTS, request=REQUESTS)
def test_the_server_reads_what_the_client_writes(xid: int, request: tuple[Request, RequestRecord]) -> None:
    sent, expected = request
    framed = encode.framed(xid, sent)
    assert len(framed) - INT.size == INT.unpack_from(framed)[0]
    frame = framed[INT.size :]
    assert (xid, sent.op_code) == read_header(frame)
    assert expected == read_record(sent.op_code, frame)


@given(names=st.lists(TEXTS, max_size=5), data=st.none() | DATA, acl=ACLS, stat=STATS, token=DATA, kind=INTS)
def test_the_client_reads_what_the_server_writes(
    names: list[str],
    data: bytes | None,
    acl: tuple[AclEntry, ...],
    stat: tuple[int, ...],
    token: bytes,
    kind: int,
) -> None:
    raw = responses.STAT.pack(*stat)
    assert stat == decode.read_stat(Reader(raw))
    assert (data or b"", stat) == decode.read_data(Reader(responses.data_body(data, raw)))
    assert (names, stat) == decode.read_children(Reader(responses.texts_body(names) + raw))
    assert (acl, stat) == decode.read_access_list(Reader(responses.acl_body(acl, raw)))
    assert token == decode.read_token(Reader(responses.token_body(token)))
    for name in names:
        header, reader = decode.read_reply(responses.event(kind, name)[INT.size :])
        assert (kind, name) == decode.read_event(reader)
        assert -1 == header.xid


@given(
    results=st.lists(
        TEXTS.map(lambda path: ((OpCode.CREATE, responses.path_body(path)), path))
        | STATS.map(lambda stat: ((OpCode.SET_DATA, responses.STAT.pack(*stat)), stat))
        | st.sampled_from([((OpCode.DELETE, b""), None), ((OpCode.CHECK, b""), None)])
        | INTS.map(lambda code: (code, MultiError(code))),
        max_size=5,
    )
)
def test_the_client_reads_the_results_of_a_multi(results: list[tuple[responses.MultiResult, object]]) -> None:
    body = responses.multi_body(sent for sent, _ in results)
    assert [expected for _, expected in results] == list(decode.read_multi(Reader(body)))
    for end in range(0, len(body), 7):
        with pytest.raises(JuteError):
            list(decode.read_multi(Reader(body[:end])))


class _Owner:
    """Reads every answer as each record that it could be."""

    def on_open(self, timeout_ms: int) -> None: ...

    def on_answer(self, call: Call, code: int, reader: Reader) -> None:
        for read in (decode.read_stat, decode.read_data, decode.read_children, decode.read_access_list):
            with contextlib.suppress(JuteError):
                read(Reader(reader._buffer, reader.position))
        with contextlib.suppress(JuteError):
            list(decode.read_multi(reader))

    def on_event(self, event_type: EventType, path: str) -> None: ...

    def on_closed(self) -> None: ...


@given(junk=st.binary(max_size=200), is_open=st.booleans(), is_framed=st.booleans())
def test_junk_from_a_server_raises_our_errors_only(junk: bytes, is_open: bool, is_framed: bool) -> None:
    stream = SessionStream(_Owner(), Session(1_000), None)
    stream.connect()
    if is_open:
        stream.receive(responses.connect_response(1_000, 1, b"", with_read_only=False))
        stream.request(Call(encode.get_acl("/"), "/", lambda reader: reader))
        if is_framed:
            junk = INT.pack(1) + junk
    if is_framed:
        junk = INT.pack(len(junk)) + junk
    with contextlib.suppress(JuteError, SessionOverError, LoginRefusedError):
        stream.receive(junk)
