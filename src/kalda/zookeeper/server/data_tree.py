"""ZooKeeper's data tree: the znodes with their metadata, the live sessions, and each session's ephemerals.

The tree holds durable transactions only, and only `apply` changes it. The prep processor has validated every
transaction, so one that does not fit the tree is corruption and raises `TreeError`. Znodes are immutable and
replaced on change, so `freeze` gives the snapshot writer a consistent view for the cost of a dict copy.
Sans-IO.

A snapshot that ZooKeeper wrote is fuzzy: it was taken while the tree changed, and holds some changes of later
transactions. While `is_fuzzy` is set, `apply` completes such transactions by ZooKeeper's rules instead of
raising.
"""

from collections.abc import KeysView
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kalda.common import invariants
from kalda.zookeeper.acl import Acl
from kalda.zookeeper.port import EventType, OperationResult, Stat, WatchEvent
from kalda.zookeeper.server.ephemeral_owner import (
    CONTAINER_OWNER,
    client_owner,
    is_session,
    ttl_of,
    ttl_owner,
)
from kalda.zookeeper.server.txns import (
    CREATE_TXNS,
    NEXT_CVERSION,
    OPEN_ACL,
    AnyCreateTxn,
    CheckTxn,
    CloseSessionTxn,
    CreateContainerTxn,
    CreateSessionTxn,
    CreateTtlTxn,
    DeleteTxn,
    ErrorTxn,
    MultiTxn,
    NodeTxn,
    SetAclTxn,
    SetDataTxn,
    Txn,
)

CONFIG_PATH: Final = "/zookeeper/config"
SYSTEM_PATHS: Final = ("/", "/zookeeper", CONFIG_PATH, "/zookeeper/quota")
"""The znodes that every ZooKeeper server has from the start; they cannot be deleted."""

INT_MAX: Final = 2**31 - 1
"""Versions and counters are 32 bits wide in ZooKeeper's records."""

ORPHANED_SESSION_TIMEOUT_MS: Final = 0
"""The time-out of a session that a fuzzy snapshot lacks; the server ends such a session after recovery."""

_CHECKED_PER_CHANGE: Final = 64
"""Znodes whose check one change may cost on average: a larger tree is checked every few changes only."""

_READ_ACL: Final = (Acl(1, "world", "anyone"),)
_ACLS_MAX: Final = 4096
"""Distinct access lists of which znodes share one copy; above this the table of copies is cleared."""


class TreeError(Exception):
    """A transaction does not fit the tree: the log or the snapshot is not the one that belongs to it."""


class Znode(NamedTuple):
    """One znode. `created_count` is ZooKeeper's stored cversion: the number of children ever created.

    It is also the next sequential child's number. The cversion that clients see also counts deletions: it is
    twice `created_count` minus the current number of children.
    """

    data: bytes | None
    acl: tuple[Acl, ...]
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    created_count: int
    aversion: int
    ephemeral_owner: int
    pzxid: int


@dataclass(frozen=True, slots=True)
class FrozenTree:
    """An immutable view of the tree at one transaction."""

    zxid: int
    nodes: dict[str, Znode]
    sessions: dict[int, int]
    is_fuzzy: bool = False
    """Whether it may hold parts of transactions after `zxid`: true for snapshots that ZooKeeper wrote."""


@dataclass(slots=True)
class Applied:
    """The effects of a transaction: results in the order of its operations, and events for watches."""

    results: list[OperationResult] = field(default_factory=list)
    events: list[WatchEvent] = field(default_factory=list)


def parent_path(path: str) -> str:
    """Return the path one level up: "/a/b" → "/a", "/a" → "/"."""
    return path[: path.rindex("/")] or "/"


class DataTree:
    """The tree. Invariants: every znode's parent exists; every ephemeral's owner is a live session."""

    def __init__(self) -> None:
        root = Znode(b"", OPEN_ACL, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        self.nodes: dict[str, Znode] = dict.fromkeys(SYSTEM_PATHS, root)
        self.nodes[CONFIG_PATH] = root._replace(acl=_READ_ACL, aversion=-1)
        self.sessions: dict[int, int] = {}
        """Time-out in milliseconds of each live session, by id."""
        self.last_zxid = 0
        self.deleted_acls: dict[str, tuple[Acl, ...]] = {}
        """The access lists, unless open, of znodes that the newest transaction deleted: events need them."""
        self.is_fuzzy = False
        self.containers: set[str] = set()
        """Paths of the containers."""
        self.ttl_paths: set[str] = set()
        """Paths of the znodes with a time to live."""
        self._children: dict[str, dict[str, None]] = {}
        """The names by parent, in the order of their creation: clients see an order that no hash decides."""
        self._ephemerals: dict[int, set[str]] = {}
        self._acls: dict[tuple[Acl, ...], tuple[Acl, ...]] = {}
        self._unchecked_changes = 0
        self._index()

    @classmethod
    def restore(cls, frozen: FrozenTree) -> "DataTree":
        """Build the tree of which `frozen` is a view.

        Raises:
            TreeError: a znode's parent or owner is missing.
        """
        tree = cls()
        for path in SYSTEM_PATHS:
            if path in frozen.nodes:
                tree.nodes.pop(path)
        tree.nodes = frozen.nodes | tree.nodes
        tree.sessions = dict(frozen.sessions)
        tree.last_zxid = frozen.zxid
        tree.is_fuzzy = frozen.is_fuzzy
        tree._index()
        return tree

    def freeze(self) -> FrozenTree:
        """Return an immutable view of the current tree."""
        return FrozenTree(self.last_zxid, dict(self.nodes), dict(self.sessions))

    def stat(self, path: str) -> Stat | None:
        """Return a znode's metadata as clients see it."""
        node = self.nodes.get(path)
        if node is None:
            return None
        child_count = len(self._children.get(path, ()))
        cversion = node.created_count * 2 - child_count
        return Stat(
            node.czxid,
            node.mzxid,
            node.ctime,
            node.mtime,
            node.version,
            cversion if cversion <= INT_MAX else cversion - 2 * INT_MAX - 2,
            node.aversion,
            client_owner(node.ephemeral_owner),
            len(node.data) if node.data is not None else 0,
            child_count,
            node.pzxid,
        )

    def children(self, path: str) -> KeysView[str]:
        """Return the names of a znode's children, in the order of their creation."""
        return self._children.get(path, _NO_CHILDREN).keys()

    def acl(self, path: str) -> tuple[Acl, ...] | None:
        """Return a znode's access list."""
        node = self.nodes.get(path)
        return None if node is None else node.acl

    def all_children_count(self, path: str) -> int:
        """Return the number of znodes below a path, at any depth."""
        if path == "/":
            return len(self.nodes) - 1
        # A walk over the children takes ten times as long for a topic tree of 200,000 znodes.
        prefix = f"{path}/"
        return sum(1 for each in self.nodes if each.startswith(prefix))

    def data_bytes(self) -> int:
        """Return the approximate size of the tree: bytes of paths and data, as ZooKeeper counts them."""
        return sum(len(path) + len(node.data or b"") for path, node in self.nodes.items())

    def ephemeral_owners(self) -> dict[int, set[str]]:
        """Return the paths of the ephemeral znodes by session; the caller must not change them."""
        return self._ephemerals

    def ephemerals(self, session_id: int) -> set[str]:
        """Return the paths of a session's ephemeral znodes; the caller must not change the set."""
        return self._ephemerals.get(session_id, _NO_PATHS)

    def apply(self, txn: Txn) -> Applied:
        """Apply a transaction.

        Raises:
            TreeError: the transaction does not fit the tree, which must not be used any more.
        """
        if txn.zxid <= self.last_zxid:
            raise TreeError(f"transaction {txn.zxid:#x} comes after {self.last_zxid:#x}")
        applied = Applied()
        if self.deleted_acls:
            self.deleted_acls = {}
        body = txn.body
        if isinstance(body, MultiTxn):
            for part in body.txns:
                self._apply_node_txn(txn, part, applied)
        elif isinstance(body, CreateSessionTxn):
            self.sessions[txn.session_id] = body.timeout_ms
        elif isinstance(body, CloseSessionTxn):
            self._close_session(txn, body, applied)
        else:
            self._apply_node_txn(txn, body, applied)
        self.last_zxid = txn.zxid
        if invariants.enabled:
            self._unchecked_changes += 1
            if self._unchecked_changes * _CHECKED_PER_CHANGE >= len(self.nodes):
                self.check_invariants()
        return applied

    def check_invariants(self) -> None:
        """Assert what holds between two transactions; walks over all znodes."""
        self._unchecked_changes = 0
        children: dict[str, dict[str, None]] = {}
        ephemerals: dict[int, set[str]] = {}
        special: set[str] = set()
        nodes, last_zxid, is_exact = self.nodes, self.last_zxid, not self.is_fuzzy
        for path, node in nodes.items():
            _, _, czxid, mzxid, _, _, _, _, _, owner, pzxid = node
            if owner:
                if is_session(owner):
                    ephemerals.setdefault(owner, set()).add(path)
                    assert path not in self._children, f"{path} is ephemeral and has children"
                else:
                    special.add(path)
            if path != "/":
                parent, _, name = path.rpartition("/")
                siblings = children.get(parent or "/")
                if siblings is None:
                    assert (parent or "/") in nodes, f"{path} has no parent"
                    siblings = children[parent or "/"] = {}
                siblings[name] = None
            if is_exact:
                is_older = czxid <= last_zxid and mzxid <= last_zxid and pzxid <= last_zxid
                assert is_older, f"{path} was changed at {max(czxid, mzxid, pzxid):#x}, the tree is older"
        assert children == self._children, "the children by parent are not the znodes below each path"
        assert ephemerals == self._ephemerals, "the ephemerals by session are not the znodes with an owner"
        assert ephemerals.keys() <= self.sessions.keys(), f"of {ephemerals.keys()} some sessions are over"
        indexed = self.containers | self.ttl_paths
        assert special == indexed, f"{special ^ indexed} are not both containers by owner and by index"

    def _apply_node_txn(self, txn: Txn, body: NodeTxn, applied: Applied) -> None:
        if isinstance(body, SetDataTxn):
            self._set_data(body, txn, applied)
        elif isinstance(body, CREATE_TXNS):
            self._create(body, txn, applied)
            applied.results.append(body.path)
        elif isinstance(body, DeleteTxn):
            self._delete(body.path, txn.zxid, applied)
            applied.results.append(None)
        elif isinstance(body, SetAclTxn):
            self._set_acl(body, txn, applied)
        else:
            assert isinstance(body, (CheckTxn, ErrorTxn)), f"{body} is no change of a znode"
            applied.results.append(None)

    def _set_data(self, body: SetDataTxn, txn: Txn, applied: Applied) -> None:
        path = body.path
        if self.is_fuzzy and path not in self.nodes:
            return
        _, acl, czxid, _, ctime, _, _, created, aversion, owner, pzxid = self._node(path, txn.zxid)
        self.nodes[path] = Znode(
            body.data, acl, czxid, txn.zxid, ctime, txn.time_ms, body.version, created, aversion, owner, pzxid
        )
        applied.events.append(WatchEvent(EventType.DATA_CHANGED, path))
        applied.results.append(self.stat(path))

    def _set_acl(self, body: SetAclTxn, txn: Txn, applied: Applied) -> None:
        path = body.path
        if self.is_fuzzy and path not in self.nodes:
            return
        node = self._node(path, txn.zxid)
        self.nodes[path] = node._replace(acl=self._shared_acl(body.acl), aversion=body.version)
        applied.results.append(self.stat(path))

    def _create(self, body: AnyCreateTxn, txn: Txn, applied: Applied) -> None:
        path, zxid, now = body.path, txn.zxid, txn.time_ms
        parent = parent_path(path)
        if self.is_fuzzy and not self._make_room(path, parent, body, zxid):
            return
        if path in self.nodes:
            raise TreeError(f"transaction {zxid:#x} creates {path}, which exists")
        parent_node = self._node(parent, zxid)
        owner = self._register_owner(body, txn)
        acl = self._shared_acl(body.acl)
        self.nodes[path] = Znode(body.data, acl, zxid, zxid, now, now, 0, 0, 0, owner, zxid)
        data, acl, czxid, mzxid, ctime, mtime, version, created, aversion, parent_owner, pzxid = parent_node
        counted = created + 1 if body.parent_cversion == NEXT_CVERSION else body.parent_cversion
        if counted > created or not self.is_fuzzy:
            created, pzxid = counted, zxid
        self.nodes[parent] = Znode(
            data, acl, czxid, mzxid, ctime, mtime, version, created, aversion, parent_owner, pzxid
        )
        siblings = self._children.get(parent)
        if siblings is None:
            siblings = self._children[parent] = {}
        siblings[_name(path)] = None
        applied.events.append(WatchEvent(EventType.CREATED, path))
        applied.events.append(WatchEvent(EventType.CHILDREN_CHANGED, parent))

    def _register_owner(self, body: AnyCreateTxn, txn: Txn) -> int:
        if isinstance(body, CreateContainerTxn):
            self.containers.add(body.path)
            return CONTAINER_OWNER
        if isinstance(body, CreateTtlTxn):
            self.ttl_paths.add(body.path)
            return ttl_owner(body.ttl_ms)
        if not body.ephemeral:
            return 0
        owner = txn.session_id
        if owner not in self.sessions:
            if not self.is_fuzzy:
                raise TreeError(
                    f"transaction {txn.zxid:#x} creates {body.path} for {owner:#x}, which is no session"
                )
            self.sessions[owner] = ORPHANED_SESSION_TIMEOUT_MS
        self._ephemerals.setdefault(owner, set()).add(body.path)
        return owner

    def _make_room(self, path: str, parent: str, body: AnyCreateTxn, zxid: int) -> bool:
        """Return whether a creation must still be applied to a fuzzy tree that may hold it already."""
        parent_node = self.nodes.get(parent)
        if parent_node is None:
            return False
        node = self.nodes.get(path)
        if node is None:
            return True
        self.nodes[path] = node._replace(acl=self._shared_acl(body.acl))
        if body.parent_cversion > parent_node.created_count:
            self.nodes[parent] = parent_node._replace(created_count=body.parent_cversion, pzxid=zxid)
        return False

    def _delete(self, path: str, zxid: int, applied: Applied) -> None:
        parent = parent_path(path)
        if self.is_fuzzy and path not in self.nodes:
            parent_node = self.nodes.get(parent)
            if parent_node is not None and zxid > parent_node.pzxid:
                self.nodes[parent] = parent_node._replace(pzxid=zxid)
            return
        node = self._node(path, zxid)
        children = self._children.get(path)
        if children:
            if not self.is_fuzzy:
                raise TreeError(f"transaction {zxid:#x} deletes {path}, which has children")
            # The fuzzy snapshot has a later znode of this path; the log will create it and its children
            # again.
            for name in sorted(children):
                self._delete(f"{path}/{name}", zxid, applied)
        del self.nodes[path]
        if node.acl is not OPEN_ACL:
            self.deleted_acls[path] = node.acl
        self._children.pop(path, None)
        siblings = self._children[parent]
        siblings.pop(_name(path), None)
        if not siblings:
            del self._children[parent]
        data, acl, czxid, mzxid, ctime, mtime, version, created, aversion, owner, pzxid = self.nodes[parent]
        self.nodes[parent] = Znode(
            data, acl, czxid, mzxid, ctime, mtime, version, created, aversion, owner, max(pzxid, zxid)
        )
        if node.ephemeral_owner:
            self._forget_owner(path, node.ephemeral_owner)
        applied.events.append(WatchEvent(EventType.DELETED, path))
        applied.events.append(WatchEvent(EventType.CHILDREN_CHANGED, parent))

    def _forget_owner(self, path: str, owner: int) -> None:
        if not is_session(owner):
            self.containers.discard(path)
            self.ttl_paths.discard(path)
            return
        owned = self._ephemerals[owner]
        owned.discard(path)
        if not owned:
            del self._ephemerals[owner]

    def _close_session(self, txn: Txn, body: CloseSessionTxn, applied: Applied) -> None:
        session_id = txn.session_id
        for path in body.paths or ():
            self._delete(path, txn.zxid, applied)
        left = sorted(self._ephemerals.get(session_id, ()))
        if left and body.paths is not None and not self.is_fuzzy:
            raise TreeError(f"session {session_id:#x} ends but still owns {left[0]}")
        for path in left:
            self._delete(path, txn.zxid, applied)
        self.sessions.pop(session_id, None)

    def _shared_acl(self, acl: tuple[Acl, ...]) -> tuple[Acl, ...]:
        if acl is OPEN_ACL or acl == OPEN_ACL:
            return OPEN_ACL
        if len(self._acls) >= _ACLS_MAX:
            self._acls.clear()
        return self._acls.setdefault(acl, acl)

    def _node(self, path: str, zxid: int) -> Znode:
        node = self.nodes.get(path)
        if node is None:
            raise TreeError(f"transaction {zxid:#x} needs {path}, which does not exist")
        return node

    def _index(self) -> None:
        self._children = {}
        self._ephemerals = {}
        for path, node in self.nodes.items():
            if path != "/":
                parent = parent_path(path)
                if parent not in self.nodes:
                    raise TreeError(f"{path} has no parent")
                self._children.setdefault(parent, {})[_name(path)] = None
            if node.ephemeral_owner:
                self._index_owner(path, node.ephemeral_owner)

    def _index_owner(self, path: str, owner: int) -> None:
        if owner == CONTAINER_OWNER:
            self.containers.add(path)
        elif ttl_of(owner) is not None:
            self.ttl_paths.add(path)
        else:
            if owner not in self.sessions:
                if not self.is_fuzzy:
                    raise TreeError(f"{path} belongs to {owner:#x}, which is no session")
                self.sessions[owner] = ORPHANED_SESSION_TIMEOUT_MS
            self._ephemerals.setdefault(owner, set()).add(path)


_NO_CHILDREN: Final[dict[str, None]] = {}
_NO_PATHS: Final[set[str]] = set()


def _name(path: str) -> str:
    return path[path.rindex("/") + 1 :]
