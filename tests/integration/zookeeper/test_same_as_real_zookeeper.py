"""The same random requests go to this server and to a real ZooKeeper: answers and events must be the same.

Two clients on each, one of them authenticated; requests with faults, alone and in multis; all watches. What
must differ is compared by what it stands for: a zxid by the request that it belongs to, a session by which
client's it is, a time not at all.
"""

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.integration.real_zookeeper import RealZooKeeper, missing
from tests.integration.zookeeper.coordination_server import running_server

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

STEPS = 150
SECONDS_MAX = 30.0

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL, SET_ACL = range(1, 8)
GET_CHILDREN2, MULTI, CREATE2, CHECK, CREATE_CONTAINER, CREATE_TTL = 12, 14, 15, 13, 19, 21
CHECK_WATCHES, REMOVE_WATCHES, ALL_CHILDREN_COUNT, ADD_WATCH = 17, 18, 104, 106
WRITES = (CREATE, DELETE, SET_DATA, SET_ACL, MULTI, CREATE2, CREATE_CONTAINER, CREATE_TTL)

Acl = list[tuple[int, str, str]]
OPEN: Acl = [(31, "world", "anyone")]
ALICE = "alice:aYXlLOpEooaV1cRAvUL1fp9Qt7E="
VALID_ACLS: list[Acl] = [
    *([OPEN] * 6),
    [(1, "world", "anyone"), (31, "digest", ALICE)],
    [(6, "world", "anyone")],
    [(31, "digest", ALICE)],
    [(31, "auth", "")],
    [(31, "ip", "127.0.0.0/8")],
    [(8, "ip", "127.0.0.1"), (3, "world", "anyone")],
    [(31, "world", "anyone"), (31, "world", "anyone")],
]
INVALID_ACLS: list[Acl] = [[], [(31, "digest", "bad")], [(31, "ip", "1.2.3.4/99")], [(31, "nope", "x")]]
PATHS = ("/a", "/b", "/a/x", "/a/y", "/a/x/p", "/c", "/c/d")
BAD_PATHS = ("/a/", "//", "/a//b", "/a/.", "/a/..", "/none/x")


class Request(NamedTuple):
    client: int
    op_code: int
    body: bytes


class Answer(NamedTuple):
    error: int
    body: object
    events: list[list[tuple[int, int, str]]]


def integer(value: int) -> bytes:
    return struct.pack(">i", value)


def text(value: str | bytes | None) -> bytes:
    if value is None:
        return integer(-1)
    raw = value.encode() if isinstance(value, str) else value
    return integer(len(raw)) + raw


def acl_list(acl: Acl) -> bytes:
    return integer(len(acl)) + b"".join(integer(bits) + text(scheme) + text(id_) for bits, scheme, id_ in acl)


class Requests:
    """Makes requests up, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.base = f"/same{seed}"

    def path(self) -> str:
        return self.base + self.random.choice(PATHS if self.random.random() < 0.93 else BAD_PATHS)

    def acl(self) -> bytes:
        return acl_list(self.random.choice(VALID_ACLS if self.random.random() < 0.8 else INVALID_ACLS))

    def data(self) -> bytes:
        return text(self.random.choice((b"", b"x", b"yy", None)))

    def version(self) -> bytes:
        return integer(self.random.choice((-1, -1, -1, 0, 1, 2, -2)))

    def create(self, op_code: int) -> bytes:
        flags = {CREATE_CONTAINER: (4,), CREATE_TTL: (5, 6)}.get(op_code, (0, 0, 0, 1, 2, 3))
        body = text(self.path()) + self.data() + self.acl() + integer(self.random.choice(flags))
        if op_code == CREATE_TTL:
            body += struct.pack(">q", self.random.choice((10**9, 10**9, 0, -1, 1 << 41)))
        return body

    def multi(self) -> bytes:
        body = b""
        for _ in range(self.random.randint(1, 4)):
            op_code = self.random.choice((CREATE, CREATE, CREATE2, CREATE_CONTAINER, SET_DATA, DELETE, CHECK))
            body += struct.pack(">ibi", op_code, 0, -1) + self.body(op_code)
        return body + struct.pack(">ibi", -1, 1, -1)

    def body(self, op_code: int) -> bytes:
        if op_code in (CREATE, CREATE2, CREATE_CONTAINER, CREATE_TTL):
            return self.create(op_code)
        if op_code == MULTI:
            return self.multi()
        path = text(self.path())
        if op_code == SET_DATA:
            return path + self.data() + self.version()
        if op_code in (DELETE, CHECK):
            return path + self.version()
        if op_code == SET_ACL:
            return path + self.acl() + self.version()
        if op_code in (EXISTS, GET_DATA, GET_CHILDREN2):
            return path + bytes([self.random.randint(0, 1)])
        if op_code == ADD_WATCH:
            return path + integer(self.random.randint(0, 1))
        if op_code in (CHECK_WATCHES, REMOVE_WATCHES):
            return path + integer(self.random.randint(1, 5))
        return path

    def __iter__(self) -> Iterator[Request]:
        often = (CREATE, CREATE, CREATE2, SET_DATA, SET_DATA, DELETE, DELETE, MULTI, MULTI)
        reads = (EXISTS, GET_DATA, GET_ACL, GET_CHILDREN2, ALL_CHILDREN_COUNT)
        watches = (ADD_WATCH, CHECK_WATCHES, REMOVE_WATCHES)
        for _ in range(STEPS):
            op_code = self.random.choice(
                (*often, *often, *reads, *watches, SET_ACL, CREATE_CONTAINER, CREATE_TTL)
            )
            yield Request(self.random.randint(0, 1), op_code, self.body(op_code))


class Client:
    """One session; blocking."""

    def __init__(self, port: int, auth: str | None, *, seconds_max: float = SECONDS_MAX) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), seconds_max)
        self._stream = self._socket.makefile("rb")
        self._xid = 0
        self.events: list[tuple[int, int, str]] = []
        try:
            self.session_id = self._begin(auth)
        except (struct.error, OSError):
            self._disconnect()
            raise

    def ask(self, op_code: int, body: bytes) -> tuple[int, int, bytes]:
        """Return the reply's zxid, error and body; events that come before it are noted."""
        self._xid += 1
        self._send(struct.pack(">ii", self._xid, op_code) + body)
        while True:
            reply = self._receive()
            xid, zxid, error = struct.unpack_from(">iqi", reply)
            if xid == self._xid:
                return zxid, error, reply[16:]
            assert -1 == xid, f"reply {xid} comes for request {self._xid}"
            self.events.append((*struct.unpack_from(">ii", reply, 16), reply[28:].decode()))

    def close(self) -> None:
        self.ask(-11, b"")
        self._disconnect()

    def _begin(self, auth: str | None) -> int:
        self._send(struct.pack(">iqiqi", 0, 0, 30_000, 0, 16) + bytes(17))
        session_id: int = struct.unpack_from(">q", self._receive(), 8)[0]
        if auth is not None:
            self._send(struct.pack(">iii", -4, 100, 0) + text("digest") + text(auth))
            self._receive()
        return session_id

    def _disconnect(self) -> None:
        self._stream.close()
        self._socket.close()

    def _send(self, body: bytes) -> None:
        self._socket.sendall(integer(len(body)) + body)

    def _receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._stream.read(4))
        return self._stream.read(size)


def wait_serving(port: int) -> None:
    """A ZooKeeper that has just said that it is well still hangs up on clients, or leaves one unanswered."""
    for _ in range(100):
        try:
            Client(port, None, seconds_max=5.0).close()
        except TimeoutError:
            continue
        except (struct.error, OSError):
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"nobody serves at port {port}")


class Side:
    """One server, as seen by its two clients, in numbers that can be compared."""

    def __init__(self, port: int, base: str) -> None:
        self.clients = [Client(port, None), Client(port, "alice:secret")]
        self._sessions = {0: "nobody"} | {c.session_id: f"client {n}" for n, c in enumerate(self.clients)}
        self._zxids: dict[int, int] = {}
        self._count = 0
        self.ask(Request(0, CREATE, text(base) + text(b"") + acl_list(OPEN) + integer(0)))

    def ask(self, request: Request) -> Answer:
        self._count += 1
        zxid, error, body = self.clients[request.client].ask(request.op_code, request.body)
        has_failed = error != 0 or (request.op_code == MULTI and body.startswith(integer(-1)))
        if request.op_code in WRITES and not has_failed:
            self._zxids[zxid] = self._count
        for client in self.clients:
            # What the change told this client is there before the answer to anything later.
            client.ask(EXISTS, text("/") + b"\0")
        events = [client.events for client in self.clients]
        for client in self.clients:
            client.events = []
        return Answer(error, self._comparable(request.op_code, body) if not error else body, events)

    def _comparable(self, op_code: int, body: bytes) -> object:
        if op_code == MULTI:
            return self._multi(body)
        if op_code in (SET_DATA, SET_ACL, EXISTS):
            return self._stat(body)
        if op_code == GET_CHILDREN2:
            return self._names(body[:-68]), self._stat(body[-68:])
        if op_code in (GET_DATA, GET_ACL, CREATE2, CREATE_CONTAINER, CREATE_TTL):
            return body[:-68], self._stat(body[-68:])
        return body

    def _stat(self, body: bytes) -> tuple[object, ...]:
        czxid, mzxid, _, _, *counts, owner, size, children, pzxid = struct.unpack(">qqqqiiiqiiq", body)
        zxids = [self._zxids.get(zxid) for zxid in (czxid, mzxid, pzxid)]
        return (*zxids, *counts, self._sessions[owner], size, children)

    def _names(self, body: bytes) -> list[bytes]:
        names, position = [], 4
        while position < len(body):
            (size,) = struct.unpack_from(">i", body, position)
            names.append(body[position + 4 : position + 4 + size])
            position += 4 + size
        return sorted(names)

    def _multi(self, body: bytes) -> list[object]:
        results: list[object] = []
        position = 0
        while True:
            op_code, is_last, error = struct.unpack_from(">ibi", body, position)
            results.append((op_code, error))
            position += 9
            if is_last:
                assert position == len(body)
                return results
            if op_code == -1:
                position += 4
            if op_code in (CREATE, CREATE2):
                (size,) = struct.unpack_from(">i", body, position)
                results.append(body[position + 4 : position + 4 + size])
                position += 4 + size
            if op_code in (CREATE2, SET_DATA):
                results.append(self._stat(body[position : position + 68]))
                position += 68


def test_same_requests_get_the_same_answers_and_events(tmp_path: Path, real_zookeeper: RealZooKeeper) -> None:
    """Error codes, their precedence, every counter of a stat, and the order of events are ZooKeeper's."""
    wait_serving(real_zookeeper.port)
    with running_server(tmp_path / "ours") as server:
        for seed in range(8):
            requests = Requests(seed)
            ours, theirs = (Side(port, requests.base) for port in (server.port, real_zookeeper.port))
            for step, request in enumerate(requests):
                found, expected = ours.ask(request), theirs.ask(request)
                assert expected == found, f"seed {seed}, step {step}: {request}"
            for client in (*ours.clients, *theirs.clients):
                client.close()
