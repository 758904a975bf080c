"""Looks up, on the driver, which partitions a query reads and which offsets its options stand for.

Partitions are not cached: each trigger reads the partitions that exist at that moment.
"""

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar, assert_never
from uuid import UUID

from kalda.clients.config.isolation_level import IsolationLevel
from kalda.clients.errors import BrokerConnectionError, RequestTimedOutError, UnknownTopicOrPartitionError
from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.values import OffsetAndTimestamp
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.list_offsets import LATEST_TIMESTAMP
from kalda.spark.source.data_loss import report_data_loss
from kalda.spark.source.group_offsets import Committed, GroupOffsets, OffsetStore
from kalda.spark.source.log_history import check_reincarnations
from kalda.spark.source.offsets import EARLIEST, LATEST, PartitionOffsets
from kalda.spark.source.option_values import OptionError
from kalda.spark.source.options import Assign, SourceOptions, Subscribe, SubscribePattern
from kalda.spark.source.positions import (
    Ago,
    AtCommitted,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Edge,
    NoMatch,
    Position,
)

if TYPE_CHECKING:
    from kalda.common.regex import Pattern

T = TypeVar("T")

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """The partitions that exist, and the topics that the options name but the cluster does not have."""

    partitions: tuple[TopicPartition, ...]
    missing_topics: tuple[str, ...] = ()
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    """The ids of the topics, as far as the cluster has such."""


class Discovery:
    """Looks up partitions and offsets with a log reader of its own.

    Args:
        is_patient: whether to wait a moment for a topic that the brokers do not know yet, as a query may
            start right behind the creation of its topic; and to repeat what no broker answered. Commands
            that a person waits for do neither.
    """

    def __init__(
        self,
        options: SourceOptions,
        *,
        client: LogReader | None = None,
        group: OffsetStore | None = None,
        sleep: Callable[[float], None] = time.sleep,
        wall_clock: Callable[[], float] = time.time,
        is_patient: bool = True,
    ) -> None:
        self._options: Final = options
        self._is_patient: Final = is_patient
        self._client: Final = client if client is not None else LogReader(options.client)
        self._owns_client: Final = client is None
        self._group: Final = (
            group if group is not None else GroupOffsets(options.connection, options.group_id)
        )
        self._sleep: Final = sleep
        self._wall_clock: Final = wall_clock
        self._gone: Final[set[str]] = set()
        self._end_epochs: dict[TopicPartition, int] = {}
        self._has_answered = False
        """Whether the cluster has answered a look-up."""

    def close(self) -> None:
        """Close the connections; a client that was given stays open."""
        self._group.close()
        if self._owns_client:
            self._client.close()

    @property
    def end_epochs(self) -> Mapping[TopicPartition, int]:
        """The leader epoch of the last record before each end that `end_offsets` returned last."""
        return self._end_epochs

    def find_partitions(self) -> Found:
        """Look up what `subscribe`, `subscribePattern` or `assign` selects now."""
        return self._patiently(self._find_partitions)

    def committed(self) -> dict[TopicPartition, Committed]:
        """Return the committed offsets of the query's group."""
        return self._group.read()

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return where leader epochs ended; see `LogReader.epoch_ends`."""
        return self._patiently(lambda: self._client.epoch_ends(epochs))

    def _find_partitions(self) -> Found:
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
                chosen = tuple(each for each in partitions if each in there)
                return Found(chosen, found.missing_topics, found.topic_ids)
            case SubscribePattern(pattern):
                # Spark's own connector looks for the pattern anywhere in the name, too.
                linear = _in_linear_time(pattern)
                matching = [
                    each
                    for each in self._client.metadata().topics.values()
                    if not each.is_internal and linear.search(each.name)
                ]
                return Found(
                    tuple(sorted(tp for each in matching for tp in each.topic_partitions)),
                    topic_ids={each.name: each.topic_id for each in matching},
                )
            case _ as never:
                assert_never(never)

    def require_partitions(self) -> Found:
        """Look up the selection; every topic that it names must exist.

        Raises:
            UnknownTopicOrPartitionError: one does not.
        """
        found = self.find_partitions()
        if found.missing_topics:
            raise UnknownTopicOrPartitionError(f"topic {', '.join(found.missing_topics)}")
        return found

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where the partitions begin."""
        wanted = list(partitions)
        return self._patiently(lambda: self._client.beginning_offsets(wanted))

    def offsets_since(
        self, timestamp: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Return the first offsets with timestamps of at least `timestamp` ms; None where there is none."""
        found = self._list_offsets(dict.fromkeys(partitions, timestamp))
        return {each: None if answer is None else answer.offset for each, answer in found.items()}

    def end_offsets(
        self, partitions: Iterable[TopicPartition], known: PartitionOffsets | None = None
    ) -> dict[TopicPartition, int]:
        """Return where the partitions end now; one that ends before its known offset is asked again.

        A new leader's high watermark can lag for a moment.
        """
        ends = self._ask_ends(partitions)
        for _ in range(self._options.fetch_offset_tries - 1):
            behind = [each for each, end in ends.items() if known is not None and end < known.get(each, 0)]
            if not behind:
                break
            logger.warning("ends before offsets already read, asking again: %s", ", ".join(map(str, behind)))
            self._sleep(self._options.fetch_offset_wait_ms / 1000)
            ends |= self._ask_ends(behind)
        return ends

    def _ask_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = self._list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP))
        for each, answer in found.items():
            if answer is not None and answer.leader_epoch is not None:
                self._end_epochs[each] = answer.leader_epoch
            else:
                self._end_epochs.pop(each, None)
        return {each: -1 if answer is None else answer.offset for each, answer in found.items()}

    def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return self._patiently(lambda: self._client.list_offsets(timestamps))

    def _patiently(self, look_up: Callable[[], T]) -> T:
        """Repeat a look-up that no broker answered: `fetchOffset.numRetries` attempts in all.

        The first look-up has one, in which the client tries for `default.api.timeout.ms`: servers that have
        never answered are rather misspelt than busy.
        """
        tries = self._options.fetch_offset_tries if self._is_patient and self._has_answered else 1
        for number in range(1, tries + 1):
            try:
                found = look_up()
                self._has_answered = True
                return found
            except (RequestTimedOutError, BrokerConnectionError) as error:
                if number == tries:
                    raise
                logger.warning("attempt %d of %d to look up offsets failed: %s", number, tries, error)
                self._sleep(self._options.fetch_offset_wait_ms / 1000)
        raise AssertionError("at least one attempt is made")

    def starting_offsets(
        self, partitions: Collection[TopicPartition], ends: PartitionOffsets | None = None
    ) -> dict[TopicPartition, int]:
        """Resolve the option for the start; `ends`, if given, are what "latest" means.

        Raises:
            OptionError: the option does not fit the partitions, or no record is as young as its timestamp.
        """
        return self._resolve("starting", self._options.starting, partitions, ends)

    def ending_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Resolve the option for the end; a timestamp that no record reaches means the latest offset.

        An offset that the log does not reach is a loss, and is lowered to the log's end where that is
        allowed: tasks would wait for the records for `kafkaConsumer.pollTimeoutMs`. Under ``read_committed``
        they do, as records behind an open transaction become readable when it ends.

        Raises:
            DataLossError: see above, and `failOnDataLoss` is true.
        """
        ending = self._options.ending
        wanted = self._resolve("ending", ending, partitions, None)
        is_committed = self._options.client.isolation is IsolationLevel.READ_COMMITTED
        if not isinstance(ending, AtOffsets) or is_committed:
            return wanted
        ends = self.end_offsets(wanted, known=wanted)
        for each, offset in wanted.items():
            if offset > ends[each]:
                report_data_loss(
                    f"`endingOffsets` of {each} is {offset}, and the log ends at {ends[each]}",
                    fail=self._options.fail_on_data_loss,
                )
        return {each: min(offset, ends[each]) for each, offset in wanted.items()}

    def _find_topics(self, topics: Iterable[str]) -> Found:
        partitions: list[TopicPartition] = []
        missing: list[str] = []
        topic_ids: dict[str, UUID] = {}
        # One topic that is gone must not hide the others. The client waits a moment for a topic that a broker
        # does not know yet; for one that stayed unknown, once is enough.
        metadata = self._client.metadata(topics)
        for name in topics:
            topic = metadata.topics.get(name)
            is_unknown = topic is None or topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic is not None and topic.error == ErrorCode.NONE:
                self._gone.discard(name)
                partitions += topic.topic_partitions
                topic_ids[name] = topic.topic_id
            elif name in self._gone or (is_unknown and not self._is_patient):
                missing.append(name)
            else:
                try:
                    partitions += self._client.topic_partitions([name])
                except UnknownTopicOrPartitionError:
                    self._gone.add(name)
                    missing.append(name)
        return Found(tuple(sorted(partitions)), tuple(missing), topic_ids)

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
            case Ago(span_ms):
                since = max(int(self._wall_clock() * 1000) - span_ms, 0)
                found = self._list_offsets(dict.fromkeys(partitions, since))
                wanted = {each: LATEST if answer is None else answer.offset for each, answer in found.items()}
            case AtCommitted():
                wanted = self._find_committed(partitions)
            case _ as never:
                assert_never(never)
        return self._resolve_edges(wanted, ends)

    def _find_times(self, prefix: str, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        result = {}
        for each, answer in self._list_offsets(timestamps).items():
            if answer is None and prefix == "starting" and self._options.no_match is NoMatch.ERROR:
                raise OptionError(
                    f"no record of {each} has a timestamp of {timestamps[each]} or later; "
                    "set `startingOffsetsByTimestampStrategy` to latest to start at its end"
                )
            result[each] = LATEST if answer is None else answer.offset
        return result

    def _find_committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        committed = self.committed()
        check_reincarnations(
            {each.topic: found.topic_id for each, found in committed.items()},
            self.find_partitions().topic_ids,
            group_id=self._options.group_id,
            fail=True,
        )
        return {each: committed[each].offset if each in committed else EARLIEST for each in partitions}

    def _resolve_edges(
        self, wanted: Mapping[TopicPartition, int], ends: PartitionOffsets | None
    ) -> dict[TopicPartition, int]:
        result = dict(wanted)
        at_end = [each for each, offset in wanted.items() if offset == LATEST]
        result |= {each: ends[each] for each in at_end} if ends is not None else self._ask_ends(at_end)
        result |= self.beginning_offsets(each for each, offset in wanted.items() if offset == EARLIEST)
        return result


def _in_linear_time(pattern: re.Pattern[str]) -> "Pattern":
    """Return the pattern in RE2, whose time is linear in the name; itself where RE2 lacks what it uses.

    Python's `re` does not come to an end for ``(a+)+$`` and a name of 60 letters and a dash.
    """
    # Imported where it is used: few queries have a pattern, and start-up time counts.
    from kalda.common.regex import RegexError, compile_regex

    try:
        return compile_regex(pattern.pattern)
    except RegexError:
        return pattern


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
