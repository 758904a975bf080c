"""Finds the znodes of a cluster that everybody may change, and closes them.

A leaf such as ``/controller`` is protected by the list of its parent: who may delete children of ``/`` may
delete it, whatever its own list says. So the root, which ZooKeeper makes open, is closed like the znodes of
brokers, and so are the open znodes that every ZooKeeper server has below ``/zookeeper``.

The root is closed last: while it is open, nobody has looked at this cluster to the end, and all znodes are
looked at. Later starts look at the first `_LOOKED_AT_MAX` of them, those near the root first.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from kalda.zookeeper.acl import READ_BIT, Acl
from kalda.zookeeper.errors import NoAuthError, NoNodeError
from kalda.zookeeper.port import Stat
from kalda.zookeeper.znode_access import (
    CONSUMERS,
    ROOT,
    SECURE_ROOTS,
    SYSTEM_ROOTS,
    ZnodeAccess,
    access_of,
    is_open,
)

_LOOKED_AT_MAX: Final = 10_000
"""Some two seconds of requests to an ensemble, which a broker's start can bear."""

_AT_ONCE_MAX: Final = 200
"""Znodes whose requests are outstanding together."""

_NAMED_MAX: Final = 50
"""Znodes that one log line names."""

logger: Final = logging.getLogger(__name__)


class AccessClient(Protocol):
    """The operations on access lists that the clients of both engines have."""

    async def access_list(self, path: str) -> tuple[tuple[Acl, ...], Stat]:
        """Return a znode's access list and metadata; raises `NoNodeError` and `NoAuthError`."""
        ...

    async def set_access(self, path: str) -> None:
        """Give a znode the list that this client would create it with; errors as `access_list`."""
        ...

    async def children(self, path: str) -> list[str]:
        """List a znode's children."""
        ...


@dataclass(slots=True)
class OpenZnodes:
    """The znodes that everybody may change, or that brokers may not."""

    closed: list[str] = field(default_factory=list)
    """Those that have an access list now."""
    left: list[str] = field(default_factory=list)
    """Those that are open still."""
    taken: list[str] = field(default_factory=list)
    """Those that belonged to another user, and now to the brokers."""
    foreign: list[str] = field(default_factory=list)
    """Those of another user, with lists that this client may not read or change."""
    is_new_cluster: bool = False
    """Whether no broker has written anything yet: then nothing could be changed by others."""

    def log(self) -> None:
        """Log one line for each kind of finding: a warning, unless the cluster is new."""
        if self.closed:
            logger.log(
                logging.INFO if self.is_new_cluster else logging.WARNING,
                "everybody who reached ZooKeeper could change these %d znodes: %s; now they have access "
                "lists. If anyone but the brokers reached it, check topics, settings, users and ACLs",
                *_counted(self.closed),
            )
        if self.left:
            logger.warning(
                "everybody who reaches ZooKeeper can change these %d znodes: %s; start every broker with "
                "`zookeeper.set.acl`=true, and close what remains with setAcl of ZooKeeper's shell; "
                "/consumers stays open for consumers of 0.8 and 0.9, as in Kafka: close it if there are none",
                *_counted(self.left),
            )
        if self.taken:
            logger.warning(
                "these %d znodes belonged to another user of ZooKeeper; now they are the brokers': %s",
                *_counted(self.taken),
            )
        if self.foreign:
            logger.warning(
                "these %d znodes belong to another user of ZooKeeper, brokers cannot change them: %s; delete "
                "them or change their access lists as that user or as the super user",
                *_counted(self.foreign),
            )


async def close_open_znodes(
    client: AccessClient, *, own: Acl | None = None, closes: bool = True
) -> OpenZnodes:
    """Look at the znodes of a cluster; give the open ones the access lists that brokers create them with.

    Args:
        client: A session with the brokers' identity; its chroot is the cluster's.
        own: The brokers' entry, if the server is theirs alone. Then every znode is closed, and a list is
            replaced that lacks the entry or lets another user do more than everybody may. Else what Kafka
            leaves open, ``/consumers``, and what other programs have in the ensemble stay as they are and are
            only reported.
        closes: False to change nothing.

    Raises:
        ZooKeeperError: the session or the server failed.
    """
    audit = _Audit(client, own, closes)
    await audit.run()
    return audit.found


class _Audit:
    def __init__(self, client: AccessClient, own: Acl | None, closes: bool) -> None:
        self.found: Final = OpenZnodes()
        self._client: Final = client
        self._own: Final = own
        self._closes: Final = closes
        self._kept: Final[set[str]] = set()
        """Znodes of others: neither changed nor looked below."""

    async def run(self) -> None:
        is_first, top = await self._look_at_root()
        self.found.is_new_cluster = not {path[1:] for path in SECURE_ROOTS} & set(top)
        others = sorted({f"/{name}" for name in top} - {SYSTEM_ROOTS[0], CONSUMERS, *SECURE_ROOTS})
        waiting = deque((SYSTEM_ROOTS[0], CONSUMERS, *SECURE_ROOTS, *others))
        if self._own is None:
            self._kept.update((CONSUMERS, *others))
        looked_at = 0
        while waiting and (is_first or looked_at < _LOOKED_AT_MAX):
            batch = [waiting.popleft() for _ in range(min(len(waiting), _AT_ONCE_MAX))]
            looked_at += len(batch)
            outcomes = await asyncio.gather(*map(self._look, batch), return_exceptions=True)
            for path, outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, BaseException):
                    raise outcome
                if path not in self._kept:
                    waiting.extend(f"{path}/{name}" for name in outcome)
        if waiting:
            logger.info(
                "the access lists of the first %d znodes were checked; `kalda zk security-migration "
                "--zookeeper.acl secure` sets those of all",
                looked_at,
            )
        await self._look(ROOT)

    async def _look_at_root(self) -> tuple[bool, Sequence[str]]:
        """Return whether the root is open, and the names of its children."""
        try:
            acl, _ = await self._client.access_list(ROOT)
            return is_open(acl, ZnodeAccess.READABLE), await self._client.children(ROOT)
        except NoAuthError:
            return False, ()

    async def _look(self, path: str) -> Sequence[str]:
        """Close one znode if it is open; return the names of its children."""
        try:
            acl, stat = await self._client.access_list(path)
            children = await self._client.children(path) if stat.num_children else ()
            access = access_of(path, is_secure=True)
            is_too_open = is_open(acl, ZnodeAccess.READABLE if access is ZnodeAccess.OPEN else access)
            if not is_too_open and self._is_own(path, acl):
                return children
            if not self._closes or path in self._kept:
                self.found.left.append(path)
                return children
            await self._client.set_access(path)
        except NoNodeError:
            # Deleted meanwhile, or never made.
            return ()
        except NoAuthError:
            self.found.foreign.append(path)
            return ()
        (self.found.closed if is_too_open else self.found.taken).append(path)
        return children

    def _is_own(self, path: str, acl: Sequence[Acl]) -> bool:
        """Return whether the brokers alone may change a znode; the entry of another user may stand beside."""
        if self._own is None:
            return True
        allowed = 0 if access_of(path, is_secure=True) is ZnodeAccess.PRIVATE else READ_BIT
        others = [entry for entry in acl if entry != self._own]
        is_named = len(others) < len(acl) or path.startswith(SYSTEM_ROOTS[0])
        return is_named and not any(entry.permissions & ~allowed for entry in others)


def _counted(found: Sequence[str]) -> tuple[int, str]:
    named = ", ".join(sorted(found)[:_NAMED_MAX])
    more = len(found) - _NAMED_MAX
    return len(found), f"{named} and {more} more" if more > 0 else named
