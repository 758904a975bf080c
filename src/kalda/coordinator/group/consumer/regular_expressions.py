"""Subscriptions by regular expression: resolves the expressions of groups to the topics that they match.

Expressions are in RE2's syntax, as KIP-848 requires, so that matching takes linear time; an expression must
match the whole name of a topic. All expressions of a group are resolved together: when a member brings a new
one, when topics have changed since (at most every 10 s), and every 10 minutes in any case. Each group has at
most one resolution at a time. It runs in slices that are short enough for the event loop, and heartbeats do
not wait for it.

The first slice runs right behind the heartbeat that needs it, before any other request. A client acknowledges
its join within a millisecond, and a resolution after that would cost it a whole heartbeat interval.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.common.regex import RegexError, compile_regex
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.consumer.consumer_group_records import group_epoch_record, regex_record
from kalda.coordinator.group.consumer.member import RegularExpression
from kalda.coordinator.group.consumer.topics import TopicsView
from kalda.coordinator.group.group_shard_state import GroupShardState
from kalda.coordinator.runtime.coordinator_shard import Result

logger: Final = logging.getLogger(__name__)

MayDescribe = Callable[[str], bool]
"""Whether a client may describe the topic of that name."""

NAMES_PER_SLICE_MAX: Final = 1000
"""Names that one slice matches at most; an expression can take a millisecond for a single name."""

REFRESH_MIN_INTERVAL_MS: Final = 10_000
REFRESH_MAX_INTERVAL_MS: Final = 600_000

_SLICE_PAUSE_MS: Final = 1
_SLICE_MS: Final = 2
"""How long one slice may hold the event loop, give or take one name."""


def check_regex(regex: str) -> None:
    """Check that an expression compiles.

    Raises:
        ApiError: INVALID_REGULAR_EXPRESSION.
    """
    try:
        compile_regex(regex)
    except RegexError as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from None


def may_describe_all(_: str) -> bool:
    """Whether a client of a broker without ACLs may describe a topic."""
    return True


class RegexResolution:
    """Matches the names of all topics against some expressions; call `step` until it returns true.

    Topics that the client may not describe are not found.
    """

    def __init__(
        self,
        regexes: Iterable[str],
        names: Collection[str],
        generation: int,
        may_describe: MayDescribe = may_describe_all,
    ) -> None:
        self.generation: Final = generation
        """The generation of `TopicsView` that the names were taken from."""
        self._may_describe: Final = may_describe
        self._found: Final[dict[str, set[str]]] = {regex: set() for regex in regexes}
        self._patterns: Final = [(compile_regex(regex), found) for regex, found in self._found.items()]
        self._names: Final = list(names)
        self._next = 0

    def step(self, is_time_up: Callable[[], bool] = lambda: False) -> bool:
        """Match some more names, at least one; return whether all names are matched."""
        end = min(self._next + NAMES_PER_SLICE_MAX, len(self._names))
        while self._next < end:
            name = self._names[self._next]
            self._next += 1
            for pattern, found in self._patterns:
                if pattern.fullmatch(name) is not None and self._may_describe(name):
                    found.add(name)
            if is_time_up():
                break
        return self._next >= len(self._names)

    @property
    def found(self) -> dict[str, frozenset[str]]:
        """The topics that each expression matched."""
        return {regex: frozenset(names) for regex, names in self._found.items()}


class RegexRefresh:
    """Schedules the resolutions of one shard and returns the records that their results make."""

    def __init__(self, shard: GroupShardState, topics: TopicsView) -> None:
        self._shard: Final = shard
        self._topics: Final = topics
        self._under_way: Final[dict[str, RegexResolution]] = {}
        self._asked: Final[set[str]] = set()

    def clear(self) -> None:
        """Drop all resolutions: the shard is unloaded."""
        self._under_way.clear()
        self._asked.clear()

    def maybe_start(self, group: ConsumerGroup, new_regex: str | None, may_describe: MayDescribe) -> None:
        """Start a resolution of the group's expressions behind the running operation, if one is due.

        `new_regex` is an expression that a member is about to subscribe by. `may_describe` is the right of
        the member whose heartbeat starts the resolution: as in Kafka it counts for the whole group.
        """
        regexes = set(group.subscribed_regexes)
        if new_regex:
            regexes.add(new_regex)
        if not regexes or group.group_id in self._asked:
            return
        if regexes <= group.regexes.keys():
            now = self._shard.context.time_ms()
            age = now - min(group.regexes[regex].timestamp_ms for regex in regexes)
            generation = self._topics.generation
            is_stale = any(group.regexes[regex].version != generation for regex in regexes)
            if age < (REFRESH_MIN_INTERVAL_MS if is_stale else REFRESH_MAX_INTERVAL_MS):
                return
        self._asked.add(group.group_id)
        first = self._shard.context.write(partial(self._step, group.group_id, may_describe))
        first.add_done(partial(self._on_first_step, group.group_id))

    def _on_first_step(self, group_id: str, done: Pending[None]) -> None:
        """Log an unexpected error; after an `ApiError`, such as a failed append, a heartbeat starts again."""
        if done.error is not None and not isinstance(done.error, ApiError):
            logger.error("group %s: resolving regular expressions failed", group_id, exc_info=done.error)
            self._under_way.pop(group_id, None)
            self._asked.discard(group_id)

    def _schedule(self, group_id: str, may_describe: MayDescribe) -> None:
        self._shard.context.schedule(
            f"consumer-regex/{group_id}", _SLICE_PAUSE_MS, partial(self._step, group_id, may_describe)
        )

    def _step(self, group_id: str, may_describe: MayDescribe) -> Result[None]:
        group = self._shard.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or not group.subscribed_regexes:
            self._under_way.pop(group_id, None)
            self._asked.discard(group_id)
            return Result((), None)
        resolution = self._under_way.get(group_id)
        if resolution is None:
            names, generation = self._topics.names(), self._topics.generation
            resolution = RegexResolution(group.subscribed_regexes, names, generation, may_describe)
            self._under_way[group_id] = resolution
        context = self._shard.context
        end = context.monotonic_ms() + _SLICE_MS
        if not resolution.step(lambda: context.monotonic_ms() >= end):
            self._schedule(group_id, may_describe)
            return Result((), None)
        del self._under_way[group_id]
        self._asked.discard(group_id)
        return Result(self._records(group, resolution), None)

    def _records(self, group: ConsumerGroup, resolution: RegexResolution) -> list[CoordinatorRecord]:
        now = self._shard.context.time_ms()
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
