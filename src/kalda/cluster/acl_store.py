"""Reads, changes and follows ACLs in ZooKeeper, in Kafka's layout (`kalda.security.acl.znodes`).

Entries of a pattern are changed by compare-and-set on the version of its znode, so that two brokers do not
undo each other's change; a notification follows each change.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from kalda.cluster.layout import ensure_paths
from kalda.cluster.notifications import Notifications
from kalda.runtime.random import Random
from kalda.security.acl import znodes
from kalda.security.acl.model import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AccessControlEntry,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from kalda.zookeeper.errors import (
    BadArgumentsError,
    BadVersionError,
    NodeExistsError,
    NoNodeError,
)
from kalda.zookeeper.path_validation import check_path
from kalda.zookeeper.port import Create, Delete, Operation, SetData, ZooKeeperClient

logger: Final = logging.getLogger(__name__)

Entries = frozenset[AccessControlEntry]
OnEntries = Callable[[ResourcePattern, Entries], None]
"""Called with a pattern and all its entries whenever they changed."""

_DENY_ALL: Final = AccessControlEntry(WILDCARD_PRINCIPAL, WILDCARD, AclOperation.ALL, PermissionType.DENY)

_CONFLICT_RETRIES: Final = 20
"""Attempts to change a pattern that other brokers change at the same time."""


class AclStore:
    """The ACLs of one cluster."""

    def __init__(self, zookeeper: ZooKeeperClient, random: Random) -> None:
        self._zookeeper: Final = zookeeper
        self._random: Final = random
        self._followers: Final[list[Notifications]] = []

    async def start(self, on_entries: OnEntries) -> None:
        """Make the layout, read everything, and follow changes until `close`.

        Raises:
            ZooKeeperError: something could not be read or made.
        """
        await ensure_paths(self._zookeeper, znodes.persistent_paths())
        for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
            follower = _AclChanges(self._zookeeper, self._random, self, pattern_type, on_entries)
            # The watch comes first, so that no change is missed.
            await follower.start()
            self._followers.append(follower)
            await follower.read_all()

    async def close(self) -> None:
        """Stop following changes."""
        while self._followers:
            await self._followers.pop().close()

    async def read(self, pattern: ResourcePattern) -> Entries:
        """Return the entries of a pattern; none if it is not there or its data is malformed.

        Raises:
            ZooKeeperError: they cannot be read.
        """
        (found,) = await self._zookeeper.get_many([znodes.path(pattern)])
        return frozenset() if found is None else _decoded(pattern, found[0])

    async def read_type(self, pattern_type: PatternType) -> dict[ResourcePattern, Entries]:
        """Return all patterns of a type with their entries.

        Raises:
            ZooKeeperError: they cannot be read.
        """
        entries: dict[ResourcePattern, Entries] = {}
        for resource_type in znodes.TYPES:
            try:
                names = await self._zookeeper.children(znodes.type_path(pattern_type, resource_type))
            except NoNodeError:
                continue
            patterns = [ResourcePattern(resource_type, name, pattern_type) for name in names]
            found = await self._zookeeper.get_many([znodes.path(pattern) for pattern in patterns])
            for pattern, node in zip(patterns, found, strict=True):
                if node is not None:
                    entries[pattern] = _decoded(pattern, node[0])
        return entries

    async def change(
        self, pattern: ResourcePattern, change: Callable[[Entries], Iterable[AccessControlEntry]]
    ) -> Entries:
        """Replace the entries of a pattern by what `change` makes of them, and notify every broker.

        Raises:
            BadArgumentsError: the name of the pattern cannot be a znode.
            ZooKeeperError: they could not be written, or other brokers change them all the time.
        """
        path = znodes.path(pattern)
        check_path(path)
        if "/" in pattern.name:
            raise BadArgumentsError(f"the name {pattern.name} has a slash, which a znode cannot have", path)
        for _ in range(_CONFLICT_RETRIES):
            (found,) = await self._zookeeper.get_many([path])
            old = frozenset() if found is None else _decoded(pattern, found[0])
            new = frozenset(change(old))
            if new == old:
                return new
            write: Operation
            if found is None:
                write = Create(path, znodes.encode_entries(new))
            elif new:
                write = SetData(path, znodes.encode_entries(new), found[1].version)
            else:
                write = Delete(path, found[1].version)
            notification = Create(
                f"{znodes.changes_path(pattern.pattern_type)}/{znodes.CHANGE_PREFIX}",
                znodes.encode_change(pattern),
                sequential=True,
            )
            try:
                await self._zookeeper.multi([write, notification])
                return new
            except (NodeExistsError, NoNodeError, BadVersionError) as error:
                if error.operation_index != 0:
                    raise
        raise BadVersionError(f"{path} is changed by other clients all the time", path)


class _AclChanges(Notifications):
    """Follows the notifications about literal patterns, or about the others."""

    def __init__(
        self,
        zookeeper: ZooKeeperClient,
        random: Random,
        store: AclStore,
        pattern_type: PatternType,
        on_entries: OnEntries,
    ) -> None:
        super().__init__(
            zookeeper,
            random,
            znodes.changes_path(pattern_type),
            znodes.CHANGE_PREFIX,
            f"{pattern_type.title} ACLs",
        )
        self._store: Final = store
        self._pattern_type: Final = pattern_type
        self._on_entries: Final = on_entries
        self._known: set[ResourcePattern] = set()

    async def read_all(self) -> None:
        """Read every pattern; those that are gone have no entries any more."""
        found = await self._store.read_type(self._pattern_type)
        for pattern in self._known - found.keys():
            self._put(pattern, frozenset())
        for pattern, entries in found.items():
            self._put(pattern, entries)

    async def _read_all(self) -> None:
        await self.read_all()

    async def _handle(self, name: str) -> None:
        try:
            data, _ = await self._zookeeper.get(f"{self._parent}/{name}")
            pattern = znodes.decode_change(self._pattern_type, data)
            check_path(znodes.path(pattern))
        except NoNodeError:
            return
        except (znodes.AclSchemaError, BadArgumentsError, KeyError) as error:
            logger.error("change %s of ACLs is skipped: %s", name, error)
            return
        self._put(pattern, await self._store.read(pattern))

    def _put(self, pattern: ResourcePattern, entries: Entries) -> None:
        if entries:
            self._known.add(pattern)
        else:
            self._known.discard(pattern)
        self._on_entries(pattern, entries)


def _decoded(pattern: ResourcePattern, data: bytes) -> Entries:
    try:
        return znodes.decode_entries(data)
    except znodes.AclSchemaError as error:
        # Written by hand or by a newer release. What they deny is not known, so they deny everything.
        logger.error("the ACLs of %s cannot be read, so they deny everything: %s", pattern, error)
        return frozenset({_DENY_ALL})
