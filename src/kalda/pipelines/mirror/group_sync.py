"""Carries the progress of consumer groups over to the copies, so that a group can move to the target.

A group that has members in the target keeps its own offsets, and no offset goes back. What a maintainer must
not break: only offsets that `offset_syncs` translates are written; a guess would make a group miss records.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kalda.clients.admin.admin import Admin
from kalda.common.types import TopicPartition
from kalda.pipelines.mirror.offset_syncs import OffsetSyncs
from kalda.pipelines.mirror.policy import GROUP_PREFIX

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupSync:
    """Translates and writes the offsets of all groups of the source."""

    source: Admin
    target: Admin

    def run(
        self,
        targets: Mapping[TopicPartition, TopicPartition],
        syncs: Mapping[TopicPartition, OffsetSyncs],
    ) -> int:
        """Write what has moved on; return how many groups have.

        Raises:
            ClientError: a cluster cannot be reached.
        """
        found = self.source.list_consumer_groups()
        groups = [each.group_id for each in found.results if not each.group_id.startswith(GROUP_PREFIX)]
        if not groups:
            return 0
        committed = self.source.list_consumer_group_offsets(groups)
        wanted: dict[str, dict[TopicPartition, int]] = {}
        for group, offsets in committed.results.items():
            translated = {}
            for partition, answer in offsets.results.items():
                if answer is None or partition not in targets or partition not in syncs:
                    continue
                offset = syncs[partition].translate(answer.offset)
                if offset is not None:
                    translated[targets[partition]] = offset
            if translated:
                wanted[group] = translated
        return self._write(wanted) if wanted else 0

    def _write(self, wanted: Mapping[str, Mapping[TopicPartition, int]]) -> int:
        there = self.target.list_consumer_group_offsets(list(wanted))
        moved: dict[str, dict[TopicPartition, int]] = {}
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
                moved[group] = ahead
        if not moved:
            return 0
        outcomes = self.target.alter_consumer_group_offsets(moved)
        for group, error in outcomes.errors.items():
            # The usual cause: the group has members there, which commit their own progress.
            logger.info("offsets of group %s were not carried over: %s", group, error)
        return len(outcomes.results)
