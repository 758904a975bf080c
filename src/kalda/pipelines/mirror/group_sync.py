"""Translates the committed offsets of consumer groups, so that groups can continue in the target.

A group that has members in the target keeps its own offsets, and no offset goes back. Only offsets
that `offset_syncs` translates are written, because a guess would make a group miss records.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kalda.clients.admin.admin import Admin
from kalda.common.types import TopicPartition
from kalda.pipelines.mirror.mirror_maker_records import Checkpoint
from kalda.pipelines.mirror.offset_syncs import OffsetSyncs
from kalda.pipelines.mirror.policy import GROUP_PREFIX, NameFilter

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupSync:
    """Translates the offsets of groups of the source, and writes them to the target."""

    source: Admin
    target: Admin
    groups: NameFilter | None = None
    """Which groups; None for all."""

    def translate(
        self,
        targets: Mapping[TopicPartition, TopicPartition],
        syncs: Mapping[TopicPartition, OffsetSyncs],
    ) -> list[Checkpoint]:
        """Return where the groups of the source go on in the target, as far as that is known.

        Raises:
            ClientError: the source cannot be reached.
        """
        found = self.source.list_consumer_groups()
        for broker, error in found.errors.items():
            logger.warning("groups of broker %d are not carried over: %s", broker, error)
        groups = [each.group_id for each in found.results if self._is_selected(each.group_id)]
        if not groups:
            return []
        committed = self.source.list_consumer_group_offsets(groups, outcomes=True)
        for group, error in committed.errors.items():
            logger.warning("offsets of group %s are not carried over: %s", group, error)
        checkpoints = []
        for group, offsets in committed.results.items():
            for partition, error in offsets.errors.items():
                logger.warning(
                    "the offset of group %s in %s is not carried over: %s", group, partition, error
                )
            for partition, answer in offsets.results.items():
                if answer is None or partition not in targets or partition not in syncs:
                    continue
                offset = syncs[partition].translate(answer.offset)
                if offset is not None:
                    checkpoints.append(
                        Checkpoint(group, targets[partition], answer.offset, offset, answer.metadata)
                    )
        return checkpoints

    def write(self, checkpoints: Sequence[Checkpoint]) -> int:
        """Write offsets that are ahead of those in the target; return how many groups have moved on.

        Raises:
            ClientError: the target cannot be reached.
        """
        wanted: dict[str, dict[TopicPartition, int]] = {}
        for each in checkpoints:
            wanted.setdefault(each.group, {})[each.partition] = each.downstream
        moved = dict(self._ahead(wanted)) if wanted else {}
        if not moved:
            return 0
        outcomes = self.target.alter_consumer_group_offsets(moved, outcomes=True)
        for group, error in outcomes.errors.items():
            # The usual cause: the group has members there, which commit their own progress.
            logger.info("offsets of group %s were not carried over: %s", group, error)
        return len(outcomes.results)

    def _ahead(
        self, wanted: Mapping[str, Mapping[TopicPartition, int]]
    ) -> Iterator[tuple[str, dict[TopicPartition, int]]]:
        there = self.target.list_consumer_group_offsets(list(wanted), outcomes=True)
        for group, offsets in wanted.items():
            if group in there.errors:
                # What the group has there may be ahead.
                logger.info("offsets of group %s were not carried over: %s", group, there.errors[group])
                continue
            present = there[group]
            ahead = {}
            for partition, offset in offsets.items():
                if partition in present.errors:
                    continue
                answer = present.get(partition)
                if answer is None or answer.offset < offset:
                    ahead[partition] = offset
            if ahead:
                yield group, ahead

    def _is_selected(self, group: str) -> bool:
        return not group.startswith(GROUP_PREFIX) and (self.groups is None or self.groups(group))
