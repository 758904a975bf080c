"""ZooKeeper's data tree: znodes, their metadata, who owns which ephemeral, which sessions live.

Holds applied (that is: durable) transactions only, and changes by `apply` alone. Applying makes no decision:
whether an operation is allowed was decided by the prep processor, so a transaction that does not fit the tree
is corruption and raises `TreeError`. Znodes are immutable and replaced on change, so `freeze` can hand a
consistent view to the snapshot writer at the price of a dict copy. Sans-IO.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kalda.coordination.port import EventType, OperationResult, Stat, WatchEvent
from kalda.zk.server.txns import (
    OPEN_ACL,
    Acl,
    CheckTxn,
    CloseSessionTxn,
    CreateSessionTxn,
    CreateTxn,
    DeleteTxn,
    MultiTxn,
    NodeTxn,
    SetDataTxn,
    Txn,
)

SYSTEM_PATHS: Final = ("/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota")
"""What every ZooKeeper has from the start; cannot be deleted."""


class TreeError(Exception):
    """A transaction does not fit the tree: the log or the snapshot is not the one that belongs to it."""


class Znode(NamedTuple):
    """One node. `created_count` is ZooKeeper's stored cversion: children ever created under it.

    It is the next sequential child's number. The cversion that clients see also counts deletions: it is twice
    `created_count` less the children that are left.
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
    """A view of the tree at one transaction that later changes do not touch."""

    zxid: int
    nodes: dict[str, Znode]
    sessions: dict[int, int]


@dataclass(slots=True)
class Applied:
    """What a transaction did: results in the order of its operations, and what watches are to report."""

    results: list[OperationResult] = field(default_factory=list)
    events: list[WatchEvent] = field(default_factory=list)


def parent_path(path: str) -> str:
    """Return the path one level up: "/a/b" → "/a", "/a" → "/"."""
    return path[: path.rindex("/")] or "/"


class DataTree:
    """The tree. Invariants: every znode's parent is a znode; every ephemeral's owner is a session."""

    def __init__(self) -> None:
        root = Znode(b"", OPEN_ACL, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        self.nodes: dict[str, Znode] = dict.fromkeys(SYSTEM_PATHS, root)
        self.sessions: dict[int, int] = {}
        """Time-out in milliseconds of each live session, by id."""
        self.last_zxid = 0
        self._children: dict[str, set[str]] = {}
        self._ephemerals: dict[int, set[str]] = {}
        self._index()

    @classmethod
    def restore(cls, frozen: FrozenTree) -> "DataTree":
        """Build the tree that `freeze` saw.

        Raises:
            TreeError: a znode has no parent or no owner.
        """
        tree = cls()
        tree.nodes = dict(frozen.nodes)
        tree.sessions = dict(frozen.sessions)
        tree.last_zxid = frozen.zxid
        tree._index()
        return tree

    def freeze(self) -> FrozenTree:
        """Return a view of the tree as it is now."""
        return FrozenTree(self.last_zxid, dict(self.nodes), dict(self.sessions))

    def stat(self, path: str) -> Stat | None:
        """Return a znode's metadata as clients see it."""
        node = self.nodes.get(path)
        if node is None:
            return None
        child_count = len(self._children.get(path, ()))
        return Stat(
            node.czxid,
            node.mzxid,
            node.ctime,
            node.mtime,
            node.version,
            node.created_count * 2 - child_count,
            node.aversion,
            node.ephemeral_owner,
            len(node.data) if node.data is not None else 0,
            child_count,
            node.pzxid,
        )

    def children(self, path: str) -> set[str]:
        """Return the names of a znode's children; not to be changed by the caller."""
        return self._children.get(path, _NO_CHILDREN)

    def ephemerals(self, session_id: int) -> set[str]:
        """Return the paths of a session's ephemeral znodes; not to be changed by the caller."""
        return self._ephemerals.get(session_id, _NO_CHILDREN)

    def apply(self, txn: Txn) -> Applied:
        """Make a transaction part of the tree.

        Raises:
            TreeError: it does not fit; the tree must not be used any more.
        """
        if txn.zxid <= self.last_zxid:
            raise TreeError(f"transaction {txn.zxid:#x} comes after {self.last_zxid:#x}")
        applied = Applied()
        body = txn.body
        if isinstance(body, MultiTxn):
            for part in body.txns:
                self._apply_node_txn(txn, part, applied)
        elif isinstance(body, CreateSessionTxn):
            self.sessions[txn.session_id] = body.timeout_ms
        elif isinstance(body, CloseSessionTxn):
            for path in body.paths:
                self._delete(path, txn.zxid, applied)
            left = self._ephemerals.get(txn.session_id)
            if left:
                raise TreeError(f"session {txn.session_id:#x} ends but still owns {sorted(left)[0]}")
            self.sessions.pop(txn.session_id, None)
        else:
            self._apply_node_txn(txn, body, applied)
        self.last_zxid = txn.zxid
        return applied

    def _apply_node_txn(self, txn: Txn, body: NodeTxn, applied: Applied) -> None:
        if isinstance(body, CreateTxn):
            self._create(body, txn, applied)
            applied.results.append(body.path)
        elif isinstance(body, SetDataTxn):
            node = self._node(body.path, txn.zxid)
            self.nodes[body.path] = node._replace(
                data=body.data, mzxid=txn.zxid, mtime=txn.time_ms, version=body.version
            )
            applied.events.append(WatchEvent(EventType.DATA_CHANGED, body.path))
            applied.results.append(self.stat(body.path))
        elif isinstance(body, DeleteTxn):
            self._delete(body.path, txn.zxid, applied)
            applied.results.append(None)
        else:
            assert isinstance(body, CheckTxn), f"{body} is no change of a znode"
            applied.results.append(None)

    def _create(self, body: CreateTxn, txn: Txn, applied: Applied) -> None:
        path, zxid, now = body.path, txn.zxid, txn.time_ms
        if path in self.nodes:
            raise TreeError(f"transaction {zxid:#x} creates {path}, which exists")
        parent = parent_path(path)
        parent_node = self._node(parent, zxid)
        owner = txn.session_id if body.ephemeral else 0
        if owner:
            if owner not in self.sessions:
                raise TreeError(f"transaction {zxid:#x} creates {path} for {owner:#x}, which is no session")
            self._ephemerals.setdefault(owner, set()).add(path)
        self.nodes[path] = Znode(body.data, body.acl, zxid, zxid, now, now, 0, 0, 0, owner, zxid)
        self.nodes[parent] = parent_node._replace(created_count=body.parent_cversion, pzxid=zxid)
        self._children.setdefault(parent, set()).add(_name(path))
        applied.events.append(WatchEvent(EventType.CREATED, path))
        applied.events.append(WatchEvent(EventType.CHILDREN_CHANGED, parent))

    def _delete(self, path: str, zxid: int, applied: Applied) -> None:
        node = self._node(path, zxid)
        if self._children.get(path):
            raise TreeError(f"transaction {zxid:#x} deletes {path}, which has children")
        del self.nodes[path]
        self._children.pop(path, None)
        parent = parent_path(path)
        self._children[parent].discard(_name(path))
        self.nodes[parent] = self.nodes[parent]._replace(pzxid=zxid)
        if node.ephemeral_owner:
            owned = self._ephemerals[node.ephemeral_owner]
            owned.discard(path)
            if not owned:
                del self._ephemerals[node.ephemeral_owner]
        applied.events.append(WatchEvent(EventType.DELETED, path))
        applied.events.append(WatchEvent(EventType.CHILDREN_CHANGED, parent))

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
                self._children.setdefault(parent, set()).add(_name(path))
            if node.ephemeral_owner:
                if node.ephemeral_owner not in self.sessions:
                    raise TreeError(f"{path} belongs to {node.ephemeral_owner:#x}, which is no session")
                self._ephemerals.setdefault(node.ephemeral_owner, set()).add(path)


_NO_CHILDREN: Final[set[str]] = set()


def _name(path: str) -> str:
    return path[path.rindex("/") + 1 :]
