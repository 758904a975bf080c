"""Defines the subscription of an old consumer, and encodes its registration in ZooKeeper.

The registration of 0.8.2 is ``/consumers/<group>/ids/<consumer>`` with
``{"version":1,"subscription":{"orders":2},"pattern":"static","timestamp":"1395000000000"}``. With a filter
the pattern is ``white_list`` or ``black_list``, and the key of the subscription its expression.
"""

import json
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from kalda.common.public import public_in
from kalda.common.regex import Pattern, RegexError, compile_regex

STATIC: Final = "static"
WHITE_LIST: Final = "white_list"
BLACK_LIST: Final = "black_list"

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_history"}
)
STREAMS_MAX: Final = 1_000
"""Streams of one topic in one consumer; more than partitions have nothing to do."""


@public_in("kalda.clients.legacy")
class TopicFilter:
    """Topics by a regular expression, in which a comma separates alternatives: ``white-.*,orders``.

    Raises:
        ValueError: the expression is not valid.
    """

    pattern_name: str
    """How the registration names the kind of filter."""

    def __init__(self, regex: str) -> None:
        self.regex: Final = regex.strip().replace(",", "|").replace(" ", "").strip("\"'")
        try:
            self._pattern: Final[Pattern] = compile_regex(self.regex)
        except RegexError as error:
            raise ValueError(f"{regex!r} is no regular expression: {error}") from None

    def allows(self, topic: str, *, exclude_internal: bool) -> bool:
        """Whether the consumer reads a topic."""
        is_internal = exclude_internal and topic in INTERNAL_TOPICS
        return not is_internal and self._accepts(self._pattern.fullmatch(topic) is not None)

    def _accepts(self, is_match: bool) -> bool:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.regex!r})"


@public_in("kalda.clients.legacy")
class Whitelist(TopicFilter):
    """The topics whose whole name matches."""

    pattern_name = WHITE_LIST

    def _accepts(self, is_match: bool) -> bool:
        return is_match


@public_in("kalda.clients.legacy")
class Blacklist(TopicFilter):
    """All other topics."""

    pattern_name = BLACK_LIST

    def _accepts(self, is_match: bool) -> bool:
        return not is_match


class ThreadId(NamedTuple):
    """One stream of one consumer; owners in ZooKeeper are threads."""

    consumer: str
    number: int

    def __str__(self) -> str:
        return f"{self.consumer}-{self.number}"


class TopicCount(NamedTuple):
    """The subscription of one consumer: topics with their streams, or a filter with its streams."""

    streams: Mapping[str, int]
    """By topic; with a filter, one entry for its expression."""
    topic_filter: TopicFilter | None = None

    def threads(
        self, consumer: str, topics: Collection[str], *, exclude_internal: bool
    ) -> dict[str, list[ThreadId]]:
        """Return the threads that read each topic, of all `topics` that the cluster has."""
        if self.topic_filter is None:
            counts = {topic: count for topic, count in self.streams.items() if topic in topics}
        else:
            (count,) = self.streams.values()
            allows = self.topic_filter.allows
            counts = {topic: count for topic in topics if allows(topic, exclude_internal=exclude_internal)}
        return {topic: [ThreadId(consumer, number) for number in range(n)] for topic, n in counts.items()}

    def encode(self, timestamp_ms: int) -> bytes:
        """Return the data of the registration."""
        kind = STATIC if self.topic_filter is None else self.topic_filter.pattern_name
        value = {
            "version": 1,
            "subscription": dict(self.streams),
            "pattern": kind,
            "timestamp": str(timestamp_ms),
        }
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> "TopicCount | None":
        """Return the subscription in a registration; None if the data is none, which nobody can divide with.

        The whitelist and the blacklist of 0.7 in one string are not read: its releases never shared a cluster
        with these.
        """
        try:
            value = json.loads(data)
            streams = {str(name): int(count) for name, count in value["subscription"].items()}
            pattern = value.get("pattern", STATIC)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None
        if not all(0 < count <= STREAMS_MAX for count in streams.values()):
            return None
        if pattern == STATIC:
            return cls(streams)
        kinds: dict[str, type[TopicFilter]] = {WHITE_LIST: Whitelist, BLACK_LIST: Blacklist}
        if pattern not in kinds or len(streams) != 1:
            return None
        try:
            return cls(streams, kinds[pattern](next(iter(streams))))
        except ValueError:
            return None


def by_filter(topic_filter: TopicFilter, streams: int) -> TopicCount:
    """Return the subscription by a filter."""
    return TopicCount({topic_filter.regex: streams}, topic_filter)
