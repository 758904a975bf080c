"""Decides whether a client may do what it asks for: `Authorizer`, which `authorizer.class.name` switches on.

Decisions are remembered by principal and address, so that a request of a client that asked before costs a
look-up. Every change of an ACL drops all of them.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from ipaddress import IPv6Address
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

from kalda.cluster.acl_store import AclStore, Entries
from kalda.common.log_limiter import LogLimiter
from kalda.security.acl.model import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    ResourcePattern,
    ResourceType,
)
from kalda.security.acl.rules import AclRules
from kalda.security.principal import KafkaPrincipal
from kalda.settings import BrokerConfig

logger: Final = logging.getLogger(__name__)

DECISIONS_MAX: Final = 10_000
"""Decisions remembered of one client: a few megabytes at most. Beyond, all of them are forgotten."""

DECISIONS_OF_ALL_MAX: Final = 200_000
"""Decisions remembered of all clients: 100 MB at most, though a client may come from many addresses. Beyond,
all of them are forgotten."""

NAME_LENGTH_MAX: Final = 255
"""Longer names are not remembered: no topic has one, and a client could fill memory with them."""


class Client(Protocol):
    """A client whose requests are authorized: a connection, or the client of another broker."""

    principal: KafkaPrincipal
    decisions: Any
    """What the authorizer remembers of it."""
    writable_names: Collection[bytes]

    @property
    def peer_address(self) -> str:
        """Its address."""
        ...


OnDenial = Callable[[Client, AclOperation, ResourceType, str], None]


class Decisions(dict[tuple[AclOperation, ResourceType, str | None], bool]):
    """The decisions for the connections of one principal and address since the last change of an ACL.

    A name of None stands for any resource of the type.
    The sets have what Produce and Fetch ask for with every request, as it is in their frames.
    """

    __slots__ = (
        "__weakref__",
        "excluding",
        "generation",
        "readable_ids",
        "readable_names",
        "writable_names",
    )

    def __init__(self, generation: int) -> None:
        super().__init__()
        self.generation: Final = generation
        self.excluding: Final[dict[tuple[AclOperation, str, bool], bool]] = {}
        """What `Authorizer.excludes_any` has found."""
        self.readable_ids: Final[set[bytes]] = set()
        self.readable_names: Final[set[bytes]] = set()
        self.writable_names: Final[set[bytes]] = set()

    def forget(self) -> None:
        """Drop everything.

        Produce looks into `writable_names` without comparing generations, and a connection that is silent
        would hold the rest for as long as it is open.
        """
        self.clear()
        self.excluding.clear()
        self.readable_ids.clear()
        self.readable_names.clear()
        self.writable_names.clear()


Kept = Decisions | set[bytes] | dict[tuple[AclOperation, str, bool], bool]
"""What is remembered of a client."""


class Authorizer:
    """The ACLs in force on one broker."""

    def __init__(self, config: BrokerConfig, store: AclStore) -> None:
        self._rules: Final = AclRules(
            super_users=[each.strip() for each in config.super_users.split(";") if each.strip()],
            allows_everyone_by_default=config.allow_everyone_if_no_acl_found,
        )
        self._store: Final = store
        self._generation = 0
        self._remembered_count = 0
        """Decisions cached since the cache was cleared, including those of disconnected clients."""
        # A client's decisions live as long as its connections.
        self._of_clients: Final[WeakValueDictionary[tuple[str, str], Decisions]] = WeakValueDictionary()
        self._limiter: Final = LogLimiter(logger)
        self.on_denial: OnDenial | None = None
        """Called for each denial that a client notices, for the audit."""

    async def start(self) -> None:
        """Load the ACLs and follow their changes until `close`.

        Raises:
            ZooKeeperError: they cannot be read.
        """
        await self._store.start(self._on_entries)

    async def close(self) -> None:
        """Stop following changes."""
        await self._store.close()

    def _on_entries(self, pattern: ResourcePattern, entries: Entries) -> None:
        self._rules.set(pattern, entries)
        self._forget_all()

    def _forget_all(self) -> None:
        self._generation += 1
        self._remembered_count = 0
        for decisions in list(self._of_clients.values()):
            decisions.forget()
        self._of_clients.clear()

    def add_namespace(self, prefix: str) -> None:
        """Decide for the users whose names begin with a prefix as `AclRules.namespaces` says."""
        self._rules.namespaces.add(prefix)
        self._forget_all()

    def remove_namespace(self, prefix: str) -> None:
        """Undo `add_namespace`."""
        self._rules.namespaces.discard(prefix)
        self._forget_all()

    # Decisions.

    def allows(
        self,
        connection: Client,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_noted: bool = True,
    ) -> bool:
        """Whether the client of a connection may do an operation on a resource.

        With `is_noted` a denial is logged: the client gets an error, not just a shorter list.
        """
        decisions = self.decisions(connection)
        key = (operation, resource_type, name)
        found = decisions.get(key)
        if found is None:
            principal = connection.principal
            found = self._rules.allows(
                f"{principal.type}:{principal.name}",
                _host(connection),
                operation,
                resource_type,
                name,
            )
            if self._makes_room(decisions, name):
                decisions[key] = found
        if not found and is_noted:
            self._note(connection, operation, resource_type, name)
        return found

    def allows_write(self, connection: Client, name: bytes) -> bool:
        """Whether a client may write to a topic, named as in a Produce request.

        `Connection.writable_names` has the names for which it is known.
        """
        found = self.allows(connection, AclOperation.WRITE, ResourceType.TOPIC, name.decode(errors="replace"))
        if found:
            writable = self.decisions(connection).writable_names
            if self._makes_room(writable, name):
                writable.add(name)
        return found

    def allows_read(self, connection: Client, key: bytes, name: str, *, by_id: bool) -> bool:
        """Whether a client may read a topic; `key` is its name or id, as in a Fetch request."""
        decisions = self.decisions(connection)
        if key in (decisions.readable_ids if by_id else decisions.readable_names):
            return True
        found = self.allows(connection, AclOperation.READ, ResourceType.TOPIC, name)
        if found:
            decisions = self.decisions(connection)
            readable = decisions.readable_ids if by_id else decisions.readable_names
            if self._makes_room(readable, key):
                readable.add(key)
        return found

    def allows_any(self, connection: Client, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether a client may do an operation on at least one resource of a type."""
        decisions = self.decisions(connection)
        found = decisions.get((operation, resource_type, None))
        if found is None:
            found = self._rules.allows_any(
                str(connection.principal), _host(connection), operation, resource_type
            )
            if self._makes_room(decisions, ""):
                decisions[operation, resource_type, None] = found
        return found

    def excludes_any(
        self,
        connection: Client,
        operation: AclOperation,
        topics: str,
        overlaps: Callable[[ResourcePattern], bool],
        *,
        by_denial: bool,
    ) -> bool:
        """Whether a client may not do an operation on some of the topics that `topics` stands for.

        See `AclRules.excludes_any`.
        """
        decisions = self.decisions(connection)
        key = (operation, topics, by_denial)
        found = decisions.excluding.get(key)
        if found is None:
            found = self._rules.excludes_any(
                str(connection.principal),
                _host(connection),
                operation,
                ResourceType.TOPIC,
                overlaps,
                by_denial=by_denial,
            )
            if self._makes_room(decisions.excluding, topics):
                decisions.excluding[key] = found
        if found:
            self._note(connection, operation, ResourceType.TOPIC, topics)
        return found

    def allows_cluster(self, connection: Client, operation: AclOperation, *, is_noted: bool = True) -> bool:
        """Whether a client may do an operation on the cluster."""
        return self.allows(connection, operation, ResourceType.CLUSTER, CLUSTER_NAME, is_noted=is_noted)

    def operations(
        self,
        connection: Client,
        resource_type: ResourceType,
        name: str,
        operations: Iterable[AclOperation],
    ) -> int:
        """Return the permitted ones of some operations as a bit set (KIP-430)."""
        return sum(
            1 << operation
            for operation in operations
            if self.allows(connection, operation, resource_type, name, is_noted=False)
        )

    def decisions(self, connection: Client) -> Decisions:
        """Return the cached decisions for a client; each change of an ACL or login gives a new object."""
        decisions: Decisions | None = connection.decisions
        if decisions is None or decisions.generation != self._generation:
            client = str(connection.principal), connection.peer_address
            decisions = self._of_clients.get(client)
            if decisions is None or decisions.generation != self._generation:
                decisions = self._of_clients[client] = Decisions(self._generation)
            connection.decisions = decisions
            connection.writable_names = decisions.writable_names
        return decisions

    def _makes_room(self, kept: Kept, name: str | bytes) -> bool:
        """Make room for one more decision of a client; return whether it is to be remembered there."""
        if len(name) > NAME_LENGTH_MAX:
            return False
        if len(kept) >= DECISIONS_MAX:
            kept.clear()
        self._remembered_count += 1
        if self._remembered_count <= DECISIONS_OF_ALL_MAX:
            return True
        # `kept` is not in use any more.
        self._forget_all()
        return False

    def _note(
        self, connection: Client, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> None:
        self._limiter.log(
            logging.INFO,
            "principal %s is denied %s on %s %s from host %s",
            connection.principal,
            operation.title,
            resource_type.title,
            name,
            connection.peer_address,
            source=connection.peer_address,
        )
        if self.on_denial is not None:
            self.on_denial(connection, operation, resource_type, name)

    # Administration.

    def find(self, wanted: AclFilter) -> list[AclBinding]:
        """Return the bindings that a filter matches."""
        return [binding for binding in self._rules.bindings() if wanted.matches(binding)]

    async def refresh(self, pattern: ResourcePattern) -> None:
        """Read the entries of a pattern again: this broker may not know of the last changes yet.

        Raises:
            ZooKeeperError: they could not be read.
        """
        self._on_entries(pattern, await self._store.read(pattern))

    async def create(self, bindings: Sequence[AclBinding]) -> None:
        """Add bindings of one pattern.

        Raises:
            BadArgumentsError: the name of the pattern cannot be kept.
            ZooKeeperError: they could not be written.
        """
        pattern = bindings[0].pattern
        added = {binding.entry for binding in bindings}
        assert all(binding.pattern == pattern for binding in bindings), f"several patterns: {bindings}"
        self._on_entries(pattern, await self._store.change(pattern, lambda old: old | added))

    async def delete(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> None:
        """Remove entries of one pattern.

        Raises:
            ZooKeeperError: it could not be written.
        """
        removed = frozenset(entries)
        self._on_entries(pattern, await self._store.change(pattern, lambda old: old - removed))


def _host(connection: Client) -> str:
    """Return a client's address as ACLs write it: Java spells IPv6 addresses out, ``0:0:0:0:0:0:0:1``."""
    address = connection.peer_address
    if ":" not in address:
        return address
    parsed = IPv6Address(address.partition("%")[0])
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
