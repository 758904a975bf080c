"""Notices that a log is not the one that a query has read so far: another topic, or other records.

Offsets say nothing about either. A topic that was deleted and created again has the same name and may have
the same offsets; only its id differs (KIP-516). A log that lost its end in an unclean leader election and
grew again has other records under the same offsets; the leader epochs show it (KIP-320).

Ids and epochs are kept in memory during a run. Between runs, the ids are in the checkpoint's offsets (see
`offsets`), and the epochs in the group's commits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kalda.common.types import ZERO_UUID, TopicPartition, is_other_topic
from kalda.spark.source.data_loss import RecordsGoneError, report_data_loss
from kalda.spark.source.group_offsets import Committed
from kalda.spark.source.offsets import PartitionOffsets


@dataclass(frozen=True, slots=True)
class KnownEnd:
    """An offset that a query has read up to, or will, and the leader epoch of the record before it."""

    offset: int
    leader_epoch: int


class LogHistory:
    """What a run of a query knows of the logs that it reads."""

    def __init__(self) -> None:
        self._topic_ids: Final[dict[str, UUID]] = {}
        self._ends: Final[dict[TopicPartition, KnownEnd]] = {}

    def topic_id(self, topic: str) -> UUID:
        """Return the id that the topic had when it was seen last; zero if it has none."""
        return self._topic_ids.get(topic, ZERO_UUID)

    def saw_topics(self, topic_ids: Mapping[str, UUID]) -> dict[str, UUID]:
        """Take the present ids of topics; return the former ones of those that changed.

        The present ids count from now on, so that a change is reported once.
        """
        former = {
            topic: known
            for topic, present in topic_ids.items()
            if is_other_topic(known := self._topic_ids.get(topic, present), present)
        }
        self._topic_ids.update(
            {topic: present for topic, present in topic_ids.items() if present != ZERO_UUID}
        )
        return former

    def saw_ends(self, ends: PartitionOffsets, epochs: Mapping[TopicPartition, int]) -> None:
        """Take the present ends of logs with the leader epochs of their last records."""
        for each, end in ends.items():
            if each in epochs:
                self._ends[each] = KnownEnd(end, epochs[each])

    def remember_topics(self, topic_ids: Mapping[str, UUID]) -> None:
        """Take the ids that a checkpoint has, where this run knows nothing yet."""
        for topic, topic_id in topic_ids.items():
            self._topic_ids.setdefault(topic, topic_id)

    def remember(self, committed: Mapping[TopicPartition, Committed]) -> None:
        """Take what an earlier run committed, where this run knows nothing yet."""
        for each, commit in committed.items():
            if commit.topic_id != ZERO_UUID:
                self._topic_ids.setdefault(each.topic, commit.topic_id)
            if commit.leader_epoch is not None:
                self._ends.setdefault(each, KnownEnd(commit.offset, commit.leader_epoch))

    def epochs_to_check(
        self, known: PartitionOffsets, epochs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the epochs to ask the leaders for, before offsets beyond `known` are read.

        Args:
            known: Up to where the query has read.
            epochs: The leader epochs of the present last records; as long as one is the same, no leader can
                have dropped records.
        """
        return {
            each: end.leader_epoch
            for each, end in self._ends.items()
            if each in known and known[each] <= end.offset and epochs.get(each) != end.leader_epoch
        }

    def commits(self, offsets: PartitionOffsets) -> dict[TopicPartition, Committed]:
        """Return offsets as they are committed: with the topic id, and the epoch if it is that offset's."""
        return {
            each: Committed(
                offset,
                self.topic_id(each.topic),
                end.leader_epoch if (end := self._ends.get(each)) and end.offset == offset else None,
            )
            for each, offset in offsets.items()
        }


def check_reincarnations(
    former: Mapping[str, UUID],
    present: Mapping[str, UUID],
    *,
    fail: bool,
    group_id: str | None = None,
) -> None:
    """Report the topics that exist under another id than before.

    Args:
        former: The ids that the offsets belong to.
        present: The ids now.
        fail: `failOnDataLoss`.
        group_id: The group that the offsets come from; None for those of a checkpoint.

    Raises:
        RecordsGoneError: there is one, and `fail` is true.
    """
    advice = (
        "Start with a new checkpoint to read the new topic from its beginning"
        if group_id is None
        else f"Delete the offsets of group {group_id}, which still name the former topic"
    )
    for topic, known in sorted(former.items()):
        now = present.get(topic, ZERO_UUID)
        if is_other_topic(now, known):
            report_data_loss(
                f"topic {topic} was deleted and created again (its id was {known} and is {now}): the offsets "
                f"of {'this query' if group_id is None else f'group {group_id}'} belong to the former topic",
                cause=advice,
                fail=fail,
                error=RecordsGoneError,
            )


def check_truncations(
    known: PartitionOffsets, ends: Mapping[TopicPartition, int | None], *, fail: bool
) -> None:
    """Report the logs whose shared history with the query ends before what the query has read.

    Args:
        known: Up to where the query has read.
        ends: Where the leader epochs of that time end in the present logs.
        fail: `failOnDataLoss`.

    Raises:
        RecordsGoneError: there is one, and `fail` is true.
    """
    for each, end in _sorted(ends.items()):
        if end is not None and end < known[each]:
            report_data_loss(
                f"the log of {each} was truncated to {end} after this query had read up to {known[each]}",
                cause="An unclean leader election may have dropped the records, and others have taken their "
                "place. Start with a new checkpoint to read the log as it is now",
                fail=fail,
                error=RecordsGoneError,
            )


def _sorted(
    items: Iterable[tuple[TopicPartition, int | None]],
) -> list[tuple[TopicPartition, int | None]]:
    return sorted(items, key=lambda item: item[0])
