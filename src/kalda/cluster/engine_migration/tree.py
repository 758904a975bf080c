"""Reads the tree that a cluster keeps in an engine, compares it with a copy, and writes what differs.

Not copied:

- ephemeral znodes: they belong to sessions;
- the children of notifications' parents: they are for brokers that run, a starting broker reads everything.
  Their numbers come from counters of an engine, so brokers would take new ones for old;
- roots that are not Kafka's: an ensemble may serve other programs, and other clusters below chroots;
- the cluster's id and the marker, which a migration writes itself.

Notes of changes (`kalda.cluster.history`) are created one after the other in the order of the source, because
their transactions are what orders them. All other znodes are created many in one transaction.

Versions count an engine's writes. A running controller and running leaders compare them, and read them again
when they start. The exception is ``/brokers/seqid``, whose version is the last generated broker id.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar, runtime_checkable

from kalda.cluster import paths
from kalda.cluster.engine_migration.marker import MARKER
from kalda.cluster.history.subjects import NOTES
from kalda.zookeeper.acl import ALL_BITS, Acl
from kalda.zookeeper.errors import (
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ZooKeeperError,
)
from kalda.zookeeper.port import Create, Delete, Operation, SetData, Stat, ZooKeeperClient
from kalda.zookeeper.znode_access import CONSUMERS, CONTROLLER, SECURE_ROOTS

ROOTS: Final = (CONSUMERS, *SECURE_ROOTS)
"""All that a cluster has at the top: what Kalda adds is below Kafka's roots. Another name there, whatever it
is, may be the chroot of another cluster, or of the other engine."""

NOTIFICATIONS: Final = frozenset(
    {
        paths.CONFIG_CHANGES,
        paths.ISR_CHANGES,
        paths.LOG_DIR_EVENTS,
        "/kafka-acl-changes",
        "/kafka-acl-extended-changes",
        "/delegation_token/token_changes",
    }
)
OWN: Final = frozenset({paths.CLUSTER_ID, MARKER, CONTROLLER})
"""What a copy leaves out, besides notifications."""

_NOTE: Final = f"{NOTES}/"

_READ_AT_ONCE_MAX: Final = 2_000
"""Znodes whose reads are outstanding together: some hundred kilobytes of responses."""
_TRANSACTION_BYTES_MAX: Final = 262_144
"""Below the limits of requests of every engine, 1 MB in ZooKeeper."""
_TRANSACTIONS_AT_ONCE_MAX: Final = 50
_PASSES_MAX: Final = 20
"""Each repeats what lost connections left undone."""

_OPEN: Final = (Acl(ALL_BITS, "world", "anyone"),)

T = TypeVar("T")


@runtime_checkable
class AclClient(Protocol):
    """An engine with access lists of single znodes."""

    async def access_list(self, path: str) -> tuple[tuple[Acl, ...], Stat]:
        """Return a znode's access list and metadata."""
        ...

    async def set_access(self, path: str, acl: Sequence[Acl] | None = None) -> None:
        """Replace a znode's access list."""
        ...


@dataclass(frozen=True, slots=True)
class Znode:
    """A znode that is copied."""

    data: bytes
    acl: tuple[Acl, ...] | None = None
    """The access list; None if it is open to everybody, which a copy need not be, or not read."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Everything that is copied, by path, notes in their order, and the version of ``/brokers/seqid``."""

    znodes: dict[str, Znode]
    sequence: int = 0
    controller_epoch_version: int | None = None
    """The version of ``/controller_epoch``, to notice an election; None if there is none."""

    @property
    def digest(self) -> str:
        """A digest of paths and data, the same for equal trees."""
        digest = hashlib.sha256()
        for path, znode in sorted(self.znodes.items()):
            digest.update(b"%d %d\n%b\n%b\n" % (len(path), len(znode.data), path.encode(), znode.data))
        return digest.hexdigest()


@dataclass(slots=True)
class Difference:
    """The changes that make a copy equal to its source."""

    create: list[str] = field(default_factory=list)
    """Parents first."""
    replace: list[str] = field(default_factory=list)
    delete: list[str] = field(default_factory=list)
    """Children first."""
    access: list[str] = field(default_factory=list)
    sequence_writes: int = 0

    @property
    def count(self) -> int:
        """How many znodes differ."""
        return (
            len(self.create)
            + len(self.replace)
            + len(self.delete)
            + len(self.access)
            + (self.sequence_writes > 0)
        )


def compare(source: Tree, target: Tree) -> Difference:
    """Return the znodes that the target lacks, has with other data, or has in excess."""
    found = Difference(sequence_writes=max(0, source.sequence - target.sequence))
    for path, znode in source.znodes.items():
        other = target.znodes.get(path)
        if other is None:
            found.create.append(path)
        elif other.data != znode.data:
            found.replace.append(path)
        if znode.acl is not None and (other is None or other.acl != znode.acl):
            found.access.append(path)
    found.delete = [path for path in target.znodes if path not in source.znodes]
    found.create.sort(key=_depth)
    found.delete.sort(key=_depth, reverse=True)
    if paths.BROKER_SEQUENCE_ID in found.create:
        found.sequence_writes = source.sequence
    return found


async def read_tree(client: ZooKeeperClient, *, with_access: bool = False, whole: bool = False) -> Tree:
    """Read the tree; `whole` includes notifications.

    Raises:
        ZooKeeperError: a read failed.
    """
    top = [f"/{name}" for name in await client.children("/")]
    level = [path for path in top if path in ROOTS]
    znodes: dict[str, Znode] = {}
    notes: list[tuple[int, str]] = []
    sequence, epoch_version = 0, None
    while level:
        below: list[str] = []
        for part in _parts(level, _READ_AT_ONCE_MAX):
            parents: list[str] = []
            for path, entry in zip(part, await client.get_many(part), strict=True):
                if entry is None or entry[1].ephemeral_owner or path in OWN:
                    continue
                data, stat = entry
                znodes[path] = Znode(data)
                if path.startswith(_NOTE):
                    notes.append((stat.czxid, path))
                if stat.num_children and (whole or path not in NOTIFICATIONS):
                    parents.append(path)
                if path == paths.BROKER_SEQUENCE_ID:
                    sequence = stat.version
                elif path == paths.CONTROLLER_EPOCH:
                    epoch_version = stat.version
            for parent, names in zip(parents, await _children(client, parents), strict=True):
                below += [f"{parent}/{name}" for name in names]
        level = below
    for _, path in sorted(notes):
        znodes[path] = znodes.pop(path)
    if with_access:
        assert isinstance(client, AclClient), f"{client!r} has no access lists"
        await _read_access(client, znodes)
    return Tree(znodes, sequence, epoch_version)


async def _children(client: ZooKeeperClient, parents: Sequence[str]) -> list[list[str]]:
    async def of(parent: str) -> list[str]:
        try:
            return await client.children(parent)
        except NoNodeError:
            # Deleted meanwhile: the cluster is running, and this is a copy made ahead.
            return []

    return await asyncio.gather(*map(of, parents))


async def _read_access(client: AclClient, znodes: dict[str, Znode]) -> None:
    async def read(path: str) -> None:
        try:
            acl = (await client.access_list(path))[0]
            znodes[path] = Znode(znodes[path].data, None if acl == _OPEN else acl)
        except NoNodeError:
            del znodes[path]

    for part in _parts(list(znodes), _READ_AT_ONCE_MAX):
        await asyncio.gather(*map(read, part))


async def copy_tree(
    source: ZooKeeperClient, target: ZooKeeperClient, *, with_access: bool = False
) -> tuple[Tree, int]:
    """Write what differs until both, read again, are equal; return the tree and the number of written znodes.

    Raises:
        ZooKeeperError: an engine failed, or refused a write.
    """
    written = 0
    for _ in range(_PASSES_MAX):
        tree = await read_tree(source, with_access=with_access)
        difference = compare(tree, await read_tree(target, with_access=with_access))
        if not difference.count:
            return tree, written
        written += difference.count
        await _apply(target, tree, difference)
    raise ZooKeeperError(f"the copy still differs after {_PASSES_MAX} passes: something writes to an engine")


async def copy_ahead(
    source: ZooKeeperClient, target: ZooKeeperClient, *, with_access: bool = False
) -> tuple[Tree, int]:
    """Write what differs once, while the source changes; return what was read and how much was written."""
    tree = await read_tree(source, with_access=with_access)
    difference = compare(tree, await read_tree(target, with_access=with_access))
    await _apply(target, tree, difference)
    return tree, difference.count


async def clear_tree(target: ZooKeeperClient) -> None:
    """Delete a copy, with notifications; the cluster's id and the marker stay.

    Raises:
        ZooKeeperError: the engine failed.
    """
    found = sorted((await read_tree(target, whole=True)).znodes, key=_depth, reverse=True)
    await _write_levels(target, [Delete(path) for path in found if path != paths.CLUSTER])


async def _apply(target: ZooKeeperClient, tree: Tree, difference: Difference) -> None:
    await _write_levels(target, [Delete(path) for path in difference.delete])
    creations = [Create(path, tree.znodes[path].data) for path in difference.create]
    await _write_levels(target, [each for each in creations if not each.path.startswith(_NOTE)])
    await _create_in_order(target, [each for each in creations if each.path.startswith(_NOTE)])
    await _write_levels(target, [_set(path, tree.znodes[path]) for path in difference.replace])
    if paths.PRODUCER_ID_BLOCK in difference.create and not tree.znodes[paths.PRODUCER_ID_BLOCK].data:
        # Kafka's controller takes null for "none yet", and fails on empty data.
        await _write_levels(target, [SetData(paths.PRODUCER_ID_BLOCK, None)])
    if difference.sequence_writes:
        data = tree.znodes[paths.BROKER_SEQUENCE_ID].data
        again = SetData(paths.BROKER_SEQUENCE_ID, data)
        await _write(target, [[again] for _ in range(difference.sequence_writes)])
    if difference.access:
        assert isinstance(target, AclClient), f"{target!r} has no access lists"
        for part in _parts(difference.access, _READ_AT_ONCE_MAX):
            await asyncio.gather(*(target.set_access(path, tree.znodes[path].acl) for path in part))


def _set(path: str, znode: Znode) -> SetData:
    is_null = path == paths.PRODUCER_ID_BLOCK and not znode.data
    return SetData(path, None if is_null else znode.data)


async def _write_levels(client: ZooKeeperClient, operations: Sequence[Operation]) -> None:
    """Write in order of depth: the transactions of one level depend on nothing of the same level."""
    start = 0
    while start < len(operations):
        depth = _depth(operations[start].path)
        end = start
        while end < len(operations) and _depth(operations[end].path) == depth:
            end += 1
        await _write(client, _transactions(operations[start:end], client.operations_max))
        start = end


def _transactions(operations: Iterable[Operation], count_max: int) -> list[list[Operation]]:
    found: list[list[Operation]] = []
    size = 0
    for operation in operations:
        data = operation.data if isinstance(operation, Create | SetData) else b""
        grown = len(data or b"") + 2 * len(operation.path.encode())
        if not found or len(found[-1]) >= count_max or size + grown > _TRANSACTION_BYTES_MAX:
            found.append([])
            size = 0
        found[-1].append(operation)
        size += grown
    return found


async def _write(client: ZooKeeperClient, transactions: Sequence[list[Operation]]) -> None:
    """Write. What another run, or a request without a response, has done already is left to the next pass.

    Raises:
        ZooKeeperError: the engine refused it.
    """
    for part in _parts(transactions, _TRANSACTIONS_AT_ONCE_MAX):
        for outcome in await client.multi_many(part):
            if isinstance(outcome, ZooKeeperError) and not isinstance(
                outcome, NodeExistsError | NoNodeError | NotEmptyError | ConnectionLossError
            ):
                raise outcome


async def _create_in_order(client: ZooKeeperClient, creations: Iterable[Create]) -> None:
    """Create one znode in each transaction; where one may be missing, the next pass goes on.

    Raises:
        ZooKeeperError: the engine refused it.
    """
    for each in creations:
        try:
            await client.create(each.path, each.data or b"")
        except NodeExistsError:
            continue
        except (NoNodeError, ConnectionLossError):
            return


def _depth(path: str) -> int:
    return path.count("/")


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
