"""Translates offsets of the source to the target, by the mirror's offset syncs and the records of both."""

from collections.abc import Callable, Mapping
from typing import Final

from kalda.common.types import TopicPartition
from kalda.pipelines.cutover.clusters import Side, both_begins, recorded_syncs
from kalda.pipelines.cutover.journal import Cut, Journal
from kalda.pipelines.cutover.locate import How, Locator, Place, inverted
from kalda.pipelines.cutover.options import CutoverOptions
from kalda.pipelines.mirror.offset_syncs import OffsetSyncs, Run


class OffsetTranslation:
    """Finds the places of groups in the target; those that cannot change are found once."""

    def __init__(self, source: Side, target: Side, options: CutoverOptions) -> None:
        self._source: Final = source
        self._target: Final = target
        self._options: Final = options
        self._located: Final[dict[tuple[TopicPartition, int], Place]] = {}
        self._former_runs: Mapping[TopicPartition, list[Run]] | None = None

    def runs(self, syncs: Mapping[TopicPartition, OffsetSyncs]) -> dict[TopicPartition, list[Run]]:
        """Return the runs of all partitions; on the way back, those of the way there come first."""
        found = {each: list(known.runs) for each, known in syncs.items()}
        former = self._options.former
        if former is not None:
            if self._former_runs is None:
                self._former_runs = self._read_former_runs(former)
            for each, runs in self._former_runs.items():
                found[each] = runs + found.get(each, [])
        return found

    def locator(
        self, cuts: Mapping[TopicPartition, Cut], syncs: Mapping[TopicPartition, OffsetSyncs]
    ) -> Callable[[TopicPartition, int], Place]:
        """Return what finds the places of groups before cuts."""
        begins = both_begins(self._source, self._target, cuts)
        runs = self.runs(syncs)

        def locate(partition: TopicPartition, offset: int) -> Place:
            known = self._located.get((partition, offset))
            if known is not None:
                return known
            found = Locator(
                partition,
                runs.get(partition, ()),
                cuts[partition],
                self._source.rows,
                self._target.rows,
                source_begin=begins[partition].source,
                target_begin=begins[partition].target,
            ).place(offset)
            if found.how is How.EXACT:
                # The next record stays the same while records come behind it.
                self._located[partition, offset] = found
            return found

        return locate

    def _read_former_runs(self, former: Journal) -> dict[TopicPartition, list[Run]]:
        ids = self._target.topic_ids({each.topic for each in former.cuts})
        syncs = recorded_syncs(self._options.mirror.source, former.flow, ids)
        return {each: inverted(found.runs) for each, found in syncs.items()}
