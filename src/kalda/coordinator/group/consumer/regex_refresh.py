"""When the expressions of a group are matched with the topics there are, and what comes of it.

All expressions of a group are resolved together: when one is new, when topics have changed since (but not
more often than every 10 s), and every 10 minutes in any case. One resolution at a time per group; heartbeats
do not wait for it.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from kalda.coordinator.group.consumer.group import ConsumerGroup
from kalda.coordinator.group.consumer.model import RegularExpression
from kalda.coordinator.group.consumer.records import group_epoch_record, regex_record
from kalda.coordinator.group.consumer.regex import RegexResolution
from kalda.coordinator.records import CoordinatorRecord
from kalda.coordinator.runtime.ports import Result

if TYPE_CHECKING:
    from kalda.coordinator.group.consumer.part import ConsumerPart

__all__ = ["RegexRefresh"]

REFRESH_MIN_INTERVAL_MS: Final = 10_000
REFRESH_MAX_INTERVAL_MS: Final = 600_000

_SLICE_PAUSE_MS: Final = 1
_SLICE_MS: Final = 2
"""How long matching may hold the event loop, give or take one name."""


class RegexRefresh:
    """The resolutions under way in one shard."""

    def __init__(self, part: "ConsumerPart") -> None:
        self._part: Final = part
        self._under_way: Final[dict[str, RegexResolution]] = {}
        self._asked: Final[set[str]] = set()

    def clear(self) -> None:
        """Forget what is under way: the shard is unloaded."""
        self._under_way.clear()
        self._asked.clear()

    def maybe_start(self, group: ConsumerGroup, new_regex: str | None) -> None:
        """Begin to resolve the group's expressions if that is due.

        `new_regex` is one that a member is about to subscribe by.
        """
        regexes = set(group.subscribed_regexes)
        if new_regex:
            regexes.add(new_regex)
        if not regexes or group.group_id in self._asked:
            return
        if regexes <= group.regexes.keys():
            now = self._part.shard.context.time_ms()
            age = now - min(group.regexes[regex].timestamp_ms for regex in regexes)
            generation = self._part.topics.generation
            is_stale = any(group.regexes[regex].version != generation for regex in regexes)
            if age < (REFRESH_MIN_INTERVAL_MS if is_stale else REFRESH_MAX_INTERVAL_MS):
                return
        self._asked.add(group.group_id)
        self._schedule(group.group_id)

    def _schedule(self, group_id: str) -> None:
        self._part.shard.context.schedule(
            f"consumer-regex/{group_id}", _SLICE_PAUSE_MS, partial(self._step, group_id)
        )

    def _step(self, group_id: str) -> Result[None]:
        group = self._part.find(group_id)
        if group is None or not group.subscribed_regexes:
            self._under_way.pop(group_id, None)
            self._asked.discard(group_id)
            return Result((), None)
        resolution = self._under_way.get(group_id)
        if resolution is None:
            topics = self._part.topics
            resolution = RegexResolution(group.subscribed_regexes, topics.names(), topics.generation)
            self._under_way[group_id] = resolution
        context = self._part.shard.context
        end = context.monotonic_ms() + _SLICE_MS
        if not resolution.step(lambda: context.monotonic_ms() >= end):
            self._schedule(group_id)
            return Result((), None)
        del self._under_way[group_id]
        self._asked.discard(group_id)
        return Result(self._records(group, resolution), None)

    def _records(self, group: ConsumerGroup, resolution: RegexResolution) -> list[CoordinatorRecord]:
        now = self._part.shard.context.time_ms()
        records: list[CoordinatorRecord] = []
        has_changed = False
        for regex, topics in resolution.found.items():
            if not group.regex_member_count(regex):
                continue
            before = group.regexes.get(regex)
            has_changed = has_changed or topics != (before.topics if before is not None else frozenset())
            resolved = RegularExpression(topics, resolution.generation, now)
            records.append(regex_record(group.group_id, regex, resolved))
        if has_changed:
            records.append(group_epoch_record(group.group_id, group.epoch + 1))
        return records
