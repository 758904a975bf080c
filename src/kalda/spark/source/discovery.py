"""Looks up, on the driver, which partitions a query reads and which offsets its options stand for.

Partitions are not cached: each trigger reads the partitions that exist at that moment.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from kalda.clients.errors import UnknownTopicOrPartitionError
from kalda.clients.log_reader.log_reader import LogReader
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.spark.source.offsets import EARLIEST, LATEST, PartitionOffsets
from kalda.spark.source.options import (
    Assign,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Edge,
    NoMatch,
    OptionError,
    Position,
    SourceOptions,
    Subscribe,
    SubscribePattern,
)

logger: Final = logging.getLogger(__name__)

END_OFFSET_TRIES: Final = 3
"""How often an end that lies before an offset already read is asked for again (Spark's default of
`fetchOffset.numRetries`): a new leader's high watermark can lag for a moment."""
END_OFFSET_WAIT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Found:
    """The partitions that exist, and the topics that the options name but the cluster does not have."""

    partitions: tuple[TopicPartition, ...]
    missing_topics: tuple[str, ...] = ()


class Discovery:
    """Looks up partitions and offsets with a log reader of its own."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        client: LogReader | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options: Final = options
        self._client: Final = client if client is not None else LogReader(options.client)
        self._sleep: Final = sleep
        self._gone: Final[set[str]] = set()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def find_partitions(self) -> Found:
        """Look up what `subscribe`, `subscribePattern` or `assign` selects now."""
        match self._options.selection:
            case Subscribe(topics):
                return self._find_topics(topics)
            case Assign(partitions):
                found = self._find_topics(dict.fromkeys(each.topic for each in partitions))
                there = set(found.partitions)
                absent = [
                    each
                    for each in partitions
                    if each not in there and each.topic not in found.missing_topics
                ]
                if absent:
                    raise UnknownTopicOrPartitionError(f"`assign` names {', '.join(map(str, absent))}")
                return Found(tuple(each for each in partitions if each in there), found.missing_topics)
            case SubscribePattern(pattern):
                topics_now = self._client.metadata().topics.values()
                matching = [
                    each for each in topics_now if not each.is_internal and pattern.fullmatch(each.name)
                ]
                return Found(tuple(sorted(tp for each in matching for tp in each.topic_partitions)))
            case _ as never:
                assert_never(never)

    def require_partitions(self) -> tuple[TopicPartition, ...]:
        """Look up the selection; every topic that it names must exist.

        Raises:
            UnknownTopicOrPartitionError: one does not.
        """
        found = self.find_partitions()
        if found.missing_topics:
            raise UnknownTopicOrPartitionError(f"topic {', '.join(found.missing_topics)}")
        return found.partitions

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where the partitions begin."""
        return self._client.beginning_offsets(partitions)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], known: PartitionOffsets | None = None
    ) -> dict[TopicPartition, int]:
        """Return where the partitions end now; one that ends before its known offset is asked again."""
        ends = self._client.end_offsets(partitions)
        for _ in range(END_OFFSET_TRIES - 1):
            behind = [each for each, end in ends.items() if known is not None and end < known.get(each, 0)]
            if not behind:
                break
            logger.warning("ends before offsets already read, asking again: %s", ", ".join(map(str, behind)))
            self._sleep(END_OFFSET_WAIT_SECONDS)
            ends |= self._client.end_offsets(behind)
        return ends

    def starting_offsets(
        self, partitions: Collection[TopicPartition], ends: PartitionOffsets | None = None
    ) -> dict[TopicPartition, int]:
        """Resolve the option for the start; `ends`, if given, are what "latest" means.

        Raises:
            OptionError: the option does not fit the partitions, or no record is as young as its timestamp.
        """
        return self._resolve("starting", self._options.starting, partitions, ends)

    def ending_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Resolve the option for the end; a timestamp that no record reaches means the latest offset."""
        return self._resolve("ending", self._options.ending, partitions, None)

    def _find_topics(self, topics: Iterable[str]) -> Found:
        partitions: list[TopicPartition] = []
        missing: list[str] = []
        # One topic that is gone must not hide the others. The client waits a moment for a topic that a broker
        # does not know yet; for one that stayed unknown, once is enough.
        metadata = self._client.metadata(topics)
        for name in topics:
            topic = metadata.topics.get(name)
            if topic is not None and topic.error == ErrorCode.NONE:
                self._gone.discard(name)
                partitions += topic.topic_partitions
            elif name in self._gone:
                missing.append(name)
            else:
                try:
                    partitions += self._client.topic_partitions([name])
                except UnknownTopicOrPartitionError:
                    self._gone.add(name)
                    missing.append(name)
        return Found(tuple(sorted(partitions)), tuple(missing))

    def _resolve(
        self,
        prefix: str,
        position: Position,
        partitions: Collection[TopicPartition],
        ends: PartitionOffsets | None,
    ) -> dict[TopicPartition, int]:
        match position:
            case Edge.EARLIEST:
                wanted = dict.fromkeys(partitions, EARLIEST)
            case Edge.LATEST:
                wanted = dict.fromkeys(partitions, LATEST)
            case AtOffsets(offsets):
                _check_same(f"{prefix}Offsets", offsets, partitions)
                wanted = dict(offsets)
            case AtTimestamp(timestamp):
                wanted = self._find_times(prefix, dict.fromkeys(partitions, timestamp))
            case AtTimestamps(timestamps):
                _check_same(f"{prefix}OffsetsByTimestamp", timestamps, partitions)
                wanted = self._find_times(prefix, timestamps)
            case _ as never:
                assert_never(never)
        return self._resolve_edges(wanted, ends)

    def _find_times(self, prefix: str, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        result = {}
        for each, answer in self._client.list_offsets(timestamps).items():
            if answer is None and prefix == "starting" and self._options.no_match is NoMatch.ERROR:
                raise OptionError(
                    f"no record of {each} has a timestamp of {timestamps[each]} or later; "
                    "set `startingOffsetsByTimestampStrategy` to latest to start at its end"
                )
            result[each] = LATEST if answer is None else answer.offset
        return result

    def _resolve_edges(
        self, wanted: Mapping[TopicPartition, int], ends: PartitionOffsets | None
    ) -> dict[TopicPartition, int]:
        result = dict(wanted)
        at_end = [each for each, offset in wanted.items() if offset == LATEST]
        result |= (
            {each: ends[each] for each in at_end} if ends is not None else self._client.end_offsets(at_end)
        )
        result |= self._client.beginning_offsets(
            each for each, offset in wanted.items() if offset == EARLIEST
        )
        return result


def _check_same(
    name: str, given: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]
) -> None:
    if given.keys() == set(partitions):
        return
    absent = ", ".join(str(each) for each in sorted(set(partitions) - given.keys())) or "none"
    unknown = ", ".join(str(each) for each in sorted(given.keys() - set(partitions))) or "none"
    raise OptionError(
        f"`{name}` must list every partition that is read (-1 is latest, -2 is earliest); "
        f"not listed: {absent}; listed but not read: {unknown}"
    )
