"""Reads and writes the committed offsets of a query's consumer group, as a consumer outside the group does.

The commits let Kafka's tools show how far a query is. Spark's checkpoint alone decides where a query goes on;
the group is read back only for `startingOffsets=group`, for a repair, and for the topic ids and leader epochs
that the metadata of its commits keeps. `group_commits` decides when to commit.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from kalda.clients.errors import ClientError
from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from kalda.clients.admin.admin import Admin

CALL_TIMEOUT_MS: Final = 10_000
"""A commit that takes longer is given up: the next trigger brings a newer one."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What a group committed for one partition."""

    offset: int
    """The next offset to read."""
    topic_id: UUID = ZERO_UUID
    """The id of the topic that the offset belongs to; zero if the commit has none."""
    leader_epoch: int | None = None
    """The leader epoch of the record before `offset`, if it is known."""


class OffsetStore(Protocol):
    """Where the offsets of one group are."""

    def read(self) -> dict[TopicPartition, Committed]:
        """Return the committed offsets of the group."""
        ...

    def write(self, offsets: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, ClientError]:
        """Commit offsets; return the partitions that failed."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class GroupOffsets:
    """The offsets of a group in the cluster; connects on first use."""

    def __init__(self, connection: Mapping[str, str], group_id: str) -> None:
        """
        Args:
            connection: Settings of an admin client by Kafka's names.
            group_id: The group.
        """
        self._connection: Final = connection
        self._group_id: Final = group_id
        self._admin: Admin | None = None

    def read(self) -> dict[TopicPartition, Committed]:
        """Return the committed offsets of the group; none if there is no such group.

        Raises:
            ClientError: the group, or one of its partitions, cannot be read.
        """
        answer = self._running.list_consumer_group_offsets(
            [self._group_id], timeout_ms=CALL_TIMEOUT_MS, outcomes=True
        )
        fetched = answer[self._group_id]
        return {each: _from_commit(found) for each, found in fetched.items() if found is not None}

    def write(self, offsets: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, ClientError]:
        """Commit offsets with the topic ids as metadata; return the partitions that failed.

        Raises:
            ClientError: the group as a whole could not be written.
        """
        commits: dict[TopicPartition, int | OffsetAndMetadata] = {
            each: OffsetAndMetadata(committed.offset, metadata_of(committed.topic_id), committed.leader_epoch)
            for each, committed in offsets.items()
        }
        answer = self._running.alter_consumer_group_offsets(
            {self._group_id: commits}, timeout_ms=CALL_TIMEOUT_MS, outcomes=True
        )
        return dict(answer[self._group_id].errors)

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    @property
    def _running(self) -> "Admin":
        if self._admin is None:
            # Imported here: starting a query does not wait for it.
            from kalda.clients.admin.admin import Admin

            self._admin = Admin.from_config(dict(self._connection))
        return self._admin


def metadata_of(topic_id: UUID) -> str:
    """Return the metadata of a commit: ``{"by":"kalda-spark","topic_id":"…"}``."""
    content = {"by": "kalda-spark"} | ({"topic_id": str(topic_id)} if topic_id != ZERO_UUID else {})
    return json.dumps(content, separators=(",", ":"))


def _from_commit(found: OffsetAndMetadata) -> Committed:
    return Committed(found.offset, _topic_id_of(found.metadata), found.leader_epoch)


def _topic_id_of(metadata: str) -> UUID:
    """Read the id from a commit's metadata; other programs may have written anything there."""
    try:
        content = json.loads(metadata)
        return UUID(content["topic_id"]) if isinstance(content, dict) else ZERO_UUID
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ZERO_UUID
