"""Keeps share sessions: which partitions a member of a share group fetches.

A request with epoch 0 opens a session with its partitions, those after it add and remove some, and one with
epoch -1 closes it. A session ends with its connection, too. Kafka's counterpart is ``ShareSessionCache``.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import UUID
from kalda.coordinator.share.share_partition import AcquiredRange
from kalda.protocol.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, next_epoch

PartitionName: TypeAlias = tuple[UUID, int]


class SessionKey(NamedTuple):
    """A member of a share group."""

    group_id: str
    member_id: str


@dataclass(slots=True)
class ShareSession:
    """One session: `epoch` is that of the next request."""

    key: SessionKey
    connection_id: int
    epoch: int = 1
    partitions: dict[PartitionName, None] = field(default_factory=dict)
    forgotten: dict[PartitionName, None] = field(default_factory=dict)
    """Those that it had, and of which its member may still have records."""
    unsent: dict[PartitionName, Sequence[AcquiredRange]] = field(default_factory=dict)
    """What was acquired for a response that is not complete."""


class ShareSessions:
    """The sessions of one broker."""

    def __init__(self, count_max: Callable[[], int]) -> None:
        """`count_max` returns how many sessions there may be."""
        self._count_max: Final = count_max
        self._sessions: Final[dict[SessionKey, ShareSession]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, key: SessionKey, connection_id: int, partitions: Iterable[PartitionName]
    ) -> tuple[ShareSession, ShareSession | None]:
        """Open a session; return it, and the one of the member before.

        Raises:
            ApiError: SHARE_SESSION_LIMIT_REACHED.
        """
        before = self._sessions.get(key)
        if before is None and len(self._sessions) >= self._count_max():
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = ShareSession(key, connection_id, partitions=dict.fromkeys(partitions))
        self._sessions[key] = session
        return session, before

    def request(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session of a request that does not open one, and expect the next epoch from now on.

        Raises:
            ApiError: SHARE_SESSION_NOT_FOUND; INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.get(key)
        if session is None:
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL_EPOCH:
            return session
        if epoch == INITIAL_EPOCH or epoch != session.epoch:
            raise ApiError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"The share session epoch is {session.epoch}, not {epoch}.",
            )
        session.epoch = next_epoch(epoch)
        return session

    def get(self, key: SessionKey) -> ShareSession | None:
        """Return the session of a member, None without one."""
        return self._sessions.get(key)

    def is_open(self, session: ShareSession) -> bool:
        """Return whether the session has not ended, and the member has not opened another one."""
        return self._sessions.get(session.key) is session

    def close(self, session: ShareSession) -> bool:
        """End a session; return False if the member has another one by now."""
        if not self.is_open(session):
            return False
        del self._sessions[session.key]
        return True

    def of_connection(self, connection_id: int) -> list[ShareSession]:
        """Return the sessions of a connection."""
        return [each for each in self._sessions.values() if each.connection_id == connection_id]
