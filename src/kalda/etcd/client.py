"""The etcd engine: a `ZooKeeperClient` for etcd servers.

`Session` keeps the session over connections, `Requests` sends the calls, `Changes` reports what the stream of
changes says to watches. Rules that keep the port's promises:

1. A request's results are handed out only when all changes up to its revision were reported to watches.
2. A request without a response is settled at the next connection: a write to the session's key, on which each
   request depends, makes sure that it has taken effect or never will. If it has not, it is sent again. If it
   has, its results are read from etcd's history (`kalda.etcd.settlement`). If that is compacted, its writes
   fail with `ConnectionLossError`: they may have taken effect.
3. The session is over when its lease is: writes of a client that does not know it yet are refused by etcd,
   because the session's key is gone.
"""

from collections.abc import Sequence
from typing import Any, Final, Self

from kalda.etcd import messages
from kalda.etcd.address import parse_etcd_address
from kalda.etcd.batch import Call, ReadCall
from kalda.etcd.keys import node_of
from kalda.etcd.link import OpenLink
from kalda.etcd.messages import OpResponse, RangeResponse
from kalda.etcd.security import PLAINTEXT, EtcdSecurity
from kalda.etcd.session import Session
from kalda.etcd.transaction import splits, stat_of
from kalda.runtime.random import Random
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.zookeeper.errors import BadArgumentsError, NoNodeError, SessionExpiredError, ZooKeeperError
from kalda.zookeeper.path_validation import check_path
from kalda.zookeeper.port import (
    ANY_VERSION,
    Create,
    Delete,
    Operation,
    OperationResult,
    SessionKey,
    SessionState,
    SetData,
    Stat,
    StateListener,
    WatchCallback,
)

OPERATIONS_MAX: Final = 40
"""Operations of a transaction: each needs at most three conditions or changes, and others share a request."""

_KEY_PASSWORD: Final = b"etcd"
"""A lease has no password; the file that keeps the key of a session has a field for one."""


class EtcdClient:
    """One session, and a new one when it expires; implements `ZooKeeperClient`, which documents the methods.

    While no server can be reached, calls wait, at most for the session's time-out.

    >>> client = await EtcdClient.connect("etcd1:2379,etcd2:2379/prod", session_timeout_ms=18_000,
    ...                                   connection_timeout_ms=18_000)
    """

    def __init__(self, address: str, *, session_timeout_ms: int, open_link: OpenLink, random: Random) -> None:
        self._session: Final = Session(
            address,
            parse_etcd_address(address),
            timeout_ms=session_timeout_ms,
            open_link=open_link,
            random=random,
        )
        self._keys: Final = self._session.keys
        self._changes: Final = self._session.changes
        self._requests: Final = self._session.requests

    @classmethod
    async def connect(
        cls,
        address: str,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        security: EtcdSecurity = PLAINTEXT,
        open_link: OpenLink | None = None,
        random: Random = SYSTEM_RANDOM,
    ) -> Self:
        """Open a session with one of the servers; `address` is ``host:port,…[/prefix]``.

        `open_link` opens connections in the place of gRPC, which needs the extra ``etcd``.

        Raises:
            BadArgumentsError: `address` is none.
            ConnectionLossError: no server opened the session in time; the message has the last failure.
            AuthFailedError: etcd refused the login.
        """
        if open_link is None:
            # Imported here: its library is an extra, and a simulation does without it.
            from kalda.etcd.connection import grpc_links

            open_link = grpc_links(security)
        client = cls(address, session_timeout_ms=session_timeout_ms, open_link=open_link, random=random)
        await client._session.open(connection_timeout_ms)
        return client

    @property
    def session_id(self) -> int:
        """The session's id: that of its lease."""
        return self._session.id

    @property
    def session_key(self) -> SessionKey | None:
        """The credentials to end this session from a later process."""
        return SessionKey(self.session_id, _KEY_PASSWORD) if self.session_id else None

    @property
    def state(self) -> SessionState:
        """The session's state."""
        return self._session.state

    @property
    def engine_name(self) -> str:
        """The name of the engine."""
        return "etcd"

    @property
    def operations_max(self) -> int:
        """How many operations a transaction may have."""
        return OPERATIONS_MAX

    def add_state_listener(self, listener: StateListener) -> None:
        """Register a callback for changes of the state."""
        self._session.add_state_listener(listener)

    # Reads.

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        """Read a znode."""
        (outcome,) = await self._session.submit([self._get_call(path, watch)])
        result: tuple[bytes, Stat] = _value(outcome)
        return result

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        """Return whether a znode exists."""

        def convert(responses: Sequence[OpResponse], revision: int) -> Stat | None:
            kv, children = node_of(responses)
            if watch is not None:
                self._changes.fire_all(self._changes.watches.add_data(path, kv, revision, watch))
            return None if kv is None else stat_of(kv, children, len(kv.value))

        check_path(path)
        # The value is read for its length.
        operations = self._keys.reads(path, with_data=True)
        (outcome,) = await self._session.submit([ReadCall(path, operations, convert)])
        result: Stat | None = _value(outcome)
        return result

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        """List a znode's children."""

        def convert(responses: Sequence[OpResponse], revision: int) -> list[str]:
            kv, _ = node_of(responses)
            if kv is None:
                raise NoNodeError(f"{path} does not exist", path)
            found = responses[1]
            assert isinstance(found, RangeResponse), f"{found!r} is no response of a read"
            if watch is not None:
                self._changes.fire_all(self._changes.watches.add_children(path, found.kvs, revision, watch))
            return sorted(each.key[length:].decode() for each in found.kvs)

        check_path(path)
        first, end = self._keys.children(path)
        length = len(first)
        operations = [
            messages.range_op(self._keys.znode(path), keys_only=True),
            messages.range_op(first, end, keys_only=True),
        ]
        (outcome,) = await self._session.submit([ReadCall(path, operations, convert)])
        result: list[str] = _value(outcome)
        return result

    async def get_many(
        self, paths: Sequence[str], watch: WatchCallback | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        """Read many znodes."""
        outcomes = await self._session.submit([self._get_call(path, watch) for path in paths])
        return [None if isinstance(outcome, NoNodeError) else _value(outcome) for outcome in outcomes]

    # Writes.

    async def create(
        self, path: str, data: bytes = b"", ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create a znode."""
        result: str = await self._write(Create(path, data, ephemeral, sequential))
        return result

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace a znode's data."""
        result: Stat = await self._write(SetData(path, data, version))
        return result

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a znode."""
        await self._write(Delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Do all or nothing."""
        (outcome,) = await self.multi_many([operations])
        result: list[OperationResult] = _value(outcome)
        return result

    async def multi_many(
        self, transactions: Sequence[Sequence[Operation]]
    ) -> list[list[OperationResult] | ZooKeeperError]:
        """Do many transactions, several in one request."""
        outcomes: list[Any] = [None] * len(transactions)
        calls: list[Call] = []
        owners: list[int] = []
        for index, operations in enumerate(transactions):
            try:
                parts = [operations[:1], operations[1:]] if splits(operations) else [operations]
                calls += [self._requests.write_call(part, is_single=False) for part in parts]
                owners += [index] * len(parts)
            except BadArgumentsError as error:
                outcomes[index] = error
        for index, outcome in zip(owners, await self._session.submit(calls), strict=True):
            if isinstance(outcome, SessionExpiredError):
                raise outcome
            before = outcomes[index]
            if isinstance(before, list) and isinstance(outcome, list):
                outcomes[index] = before + outcome
            elif not isinstance(before, ZooKeeperError):
                outcomes[index] = outcome
        return outcomes

    # The session.

    async def end_session(self, key: SessionKey) -> None:
        """End the session of a process that is gone."""
        await self._session.end_other(key.session_id)

    async def close(self) -> None:
        """End the session; earlier calls take effect first."""
        await self._session.close()

    def abandon(self) -> None:
        """Drop the session without closing it, as a crash would; it is left to expire."""
        self._session.abandon()

    # Calls.

    def _get_call(self, path: str, watch: WatchCallback | None) -> ReadCall:
        def convert(responses: Sequence[OpResponse], revision: int) -> tuple[bytes, Stat]:
            kv, children = node_of(responses)
            if kv is None:
                raise NoNodeError(f"{path} does not exist", path)
            if watch is not None:
                self._changes.fire_all(self._changes.watches.add_data(path, kv, revision, watch))
            return kv.value, stat_of(kv, children, len(kv.value))

        check_path(path)
        return ReadCall(path, self._keys.reads(path, with_data=True), convert)

    async def _write(self, operation: Operation) -> Any:
        try:
            call = self._requests.write_call([operation], is_single=True)
        except BadArgumentsError as error:
            error.operation_index = None
            raise
        (outcome,) = await self._session.submit([call])
        return _value(outcome)


def _value(outcome: Any) -> Any:
    if isinstance(outcome, ZooKeeperError):
        raise outcome
    return outcome
