"""Decides how the search for the missing records of one log continues; it has no connections, tasks or files.

`kalda.broker.replicas.missing_records` asks the replicas and puts records into the log. It notes here what
each replica answered in a round, and acts on the verdict at the end of the round.

Only what replicas answered, or did not answer in time, ends a search without the records. Readers skip the
offsets from then on, and a consumer that has skipped records does not return.
"""

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from kalda.broker.replicas.partition import DEBUGGING_REPLICA_ID
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID, TopicPartition
from kalda.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from kalda.storage.missing_filler import GapFiller
from kalda.storage.missing_offsets import OffsetRange

if TYPE_CHECKING:
    from kalda.broker.replicas.partition import Partition

PATIENCE_SECONDS: Final = 30.0
"""How long readers wait for replicas that do not answer; a restart of a broker takes less."""
PAUSE_SECONDS: Final = 0.25
"""The pause between two rounds while readers wait."""
DISK_PAUSE_SECONDS: Final = 5.0
"""The pause between two rounds after the local disk refused the records."""
LATE_PAUSE_SECONDS: Final = 30.0
"""The pause between two rounds when no reader waits any more."""
FETCH_BYTES: Final = 4 * 1024 * 1024
_REPLICA_STATE_FROM: Final = 15
"""The version of Fetch in which the replica id moved into a struct."""
_LAST_FETCHED_EPOCH_FROM: Final = 12
_CONSUMER_ID: Final = -1


def fetch_request(
    name: TopicPartition,
    topic_id: UUID,
    offset: int,
    version: int,
    *,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
) -> FetchRequest:
    """Return a request for records from `offset` on, which opens no session and does not wait.

    With `leader_epoch` only the leader of that epoch answers, and with `last_fetched_epoch`, that of the
    record before `offset`, it answers where the log here diverges from its own (KIP-595).
    """
    has_state = version >= _REPLICA_STATE_FROM
    wanted = FetchPartition(
        partition=name.partition,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched_epoch if version >= _LAST_FETCHED_EPOCH_FROM else -1,
        partition_max_bytes=FETCH_BYTES,
    )
    return FetchRequest(
        replica_id=_CONSUMER_ID if has_state else DEBUGGING_REPLICA_ID,
        replica_state=ReplicaState(replica_id=DEBUGGING_REPLICA_ID) if has_state else ReplicaState(),
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=FETCH_BYTES,
        topics=[FetchTopic(topic=name.topic, topic_id=topic_id, partitions=[wanted])],
    )


class Answer(Enum):
    """The meaning of a replica's response to a fetch, for the next missing record."""

    RECORDS = "it sent records"
    LACKS = "it does not have the record and cannot get it"
    BEHIND = "what it sent begins behind the record"
    UNFIT = "what it sent does not continue the records here"
    SEARCHES = "it does not have the record and searches for it itself"
    NOTHING_YET = "it has nothing below its high watermark there"
    DIVERGES = "it leads, and has other records than this log before the record"
    ERROR = "it cannot answer now"


_LACKING: Final = (Answer.LACKS, Answer.BEHIND, Answer.UNFIT)


def answer_of(data: PartitionData) -> Answer:
    """Return the outcome of a response to a fetch of missing records."""
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Answer.LACKS
    if data.error_code == ErrorCode.OFFSET_NOT_AVAILABLE:
        return Answer.SEARCHES
    if data.error_code:
        return Answer.ERROR
    if data.diverging_epoch.epoch >= 0:
        return Answer.DIVERGES
    return Answer.RECORDS if data.records else Answer.NOTHING_YET


class Verdict(Enum):
    """The state of a search after a round."""

    FILLED = "nothing is missing any more"
    GOES_ON = "the replicas are asked again soon, or late if readers skip the offsets already"
    IMPATIENT = "readers skip the offsets from now on; the replicas are asked again late"
    VAIN = "no other replica has the records now, but one may get them"
    LOST = "no other replica has the records"


class GapSearch:
    """The search for one log's missing records."""

    def __init__(self, partition: "Partition", now: float) -> None:
        self.partition: Final = partition
        self.began_at: Final = now
        self.due = now
        self.is_held = False
        """Whether following the partition waits for the end of the search."""
        self.filler: GapFiller | None = None
        """The gap filler at work; it is abandoned when the search is dropped."""
        self._answers: dict[tuple[int, int], Answer] = {}
        self._has_disk_error = False

    def begin_round(self) -> None:
        """Drop the answers of the last round."""
        self._answers = {}
        self._has_disk_error = False

    def others(self) -> list[int]:
        """Return the other replicas: the leader first, then the in-sync replicas."""
        partition = self.partition
        others = [replica for replica in partition.replicas if replica != partition.broker_id]
        return sorted(
            others, key=lambda replica: (replica != partition.leader_id, replica not in partition.isr)
        )

    def note(self, broker_id: int, offset: int, answer: Answer) -> None:
        """Note a replica's response about the record at `offset`."""
        self._answers[broker_id, offset] = answer

    def is_uncommitted(self, broker_id: int, offset: int, gap_end: int) -> bool:
        """Return whether a follower may truncate its log to `offset`, in a gap up to `gap_end`.

        The leader must have answered that it has committed nothing there, and no committed record may follow
        the gap. With a gap from 15 to 19 the log must end at 20, or have a high watermark of at most 15.
        """
        partition = self.partition
        answer = self._answers.get((broker_id, offset))
        if not self.is_held or broker_id != partition.leader_id:
            return False
        if answer not in (Answer.LACKS, Answer.NOTHING_YET):
            return False
        return gap_end >= partition.log.log_end_offset or offset >= partition.log.high_watermark

    def unrecoverable_end(self) -> int | None:
        """Return where a leader may truncate its log, because no replica has the records at its end.

        No follower could reach the log end otherwise, so none could join the ISR: no batch follows that would
        lead it over the gap, and with ``min.insync.replicas`` above one no batch comes. Each follower must
        have fetched from this leader, from the gap's first offset or below: it gets records from nobody else.
        None of them may be committed.
        """
        partition, log = self.partition, self.partition.log
        if not partition.is_leader or not log.missing.is_given_up or not log.missing.ranges:
            return None
        gap = log.missing.ranges[-1]
        if gap.end != log.log_end_offset or gap.first < log.high_watermark:
            return None
        ends = [state.log_end_offset for state in partition.followers.values()]
        return gap.first if ends and all(0 <= end <= gap.first for end in ends) else None

    def note_disk_error(self) -> None:
        """Note that the local disk refused records: the search continues, since replicas have them."""
        self._has_disk_error = True

    def is_refused(self) -> bool:
        """Return whether a replica has records at what is missing, which do not continue the records here."""
        firsts = {each.first for each in self.partition.log.missing.ranges}
        return any(answer is Answer.UNFIT and first in firsts for (_, first), answer in self._answers.items())

    def judge(self, now: float) -> Verdict:
        """Return the verdict on a round, and set when the next one is due."""
        missing = self.partition.log.missing
        verdict = self._verdict(missing.ranges, now)
        if verdict is Verdict.GOES_ON and not missing.is_given_up:
            self.due = now + (DISK_PAUSE_SECONDS if self._has_disk_error else PAUSE_SECONDS)
        else:
            self.due = now + LATE_PAUSE_SECONDS
        return verdict

    def _verdict(self, ranges: Sequence[OffsetRange], now: float) -> Verdict:
        if not ranges:
            return Verdict.FILLED
        if self._has_disk_error:
            return Verdict.GOES_ON
        # A replica that lacks the beginning of one gap may have another gap, or the rest of one that another
        # replica filled in part. So each replica must lack the first record of each gap that is left.
        answers = [
            self._answers.get((broker_id, each.first)) for broker_id in self.others() for each in ranges
        ]
        if all(answer in _LACKING for answer in answers) and not self._may_be_truncated(ranges):
            return Verdict.LOST
        if all(answer in _LACKING or answer is Answer.SEARCHES for answer in answers):
            return Verdict.VAIN
        if now - self.began_at >= PATIENCE_SECONDS and self._has_leader_answered():
            return Verdict.IMPATIENT
        return Verdict.GOES_ON

    def _may_be_truncated(self, ranges: Sequence[OffsetRange]) -> bool:
        """Return whether the last gap is at the log end and nothing of it committed."""
        log = self.partition.log
        return (
            self.partition.is_leader
            and ranges[-1].end == log.log_end_offset
            and ranges[-1].first >= log.high_watermark
        )

    def _has_leader_answered(self) -> bool:
        """Return whether this broker leads, or the leader answered without an error.

        An answer without records counts: the leader's high watermark may be below the gap because it waits
        for this follower, which does not fetch before the search is over.
        """
        partition = self.partition
        return partition.is_leader or any(
            broker_id == partition.leader_id and answer is not Answer.ERROR
            for (broker_id, _), answer in self._answers.items()
        )
