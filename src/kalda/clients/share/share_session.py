"""Keeps the share session with one broker: its epoch, its partitions, and its responses. Sans-IO.

A request with epoch 0 opens a session with its partitions, the next ones say what changed, and one with epoch
-1 closes it. After any error of a session the next request opens another one. What the session before had
acquired is given up: a broker releases it with the connection, or when its locks end. So acknowledgements of
that are refused here (`number`). One request at a time.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from kalda.clients.share.acknowledgements import Acknowledgements, PartitionAcknowledgements, SharePartition
from kalda.common.types import UUID
from kalda.protocol.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, next_epoch
from kalda.protocol.messages import share_acknowledge, share_fetch

B = TypeVar("B")

RENEWS_FROM: Final = 2
"""The version of ShareAcknowledge with renewals (KIP-1222)."""
_STRICT_FROM: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """The limits of what one ShareFetch acquires."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    is_strict: bool
    """Whether `max_records` counts records (KIP-1206); else whole batches are acquired."""


class ShareSession:
    """The session of one member with one broker."""

    def __init__(self, group_id: str, member_id: str) -> None:
        self._group_id: Final = group_id
        self._member_id: Final = member_id
        self._epoch = INITIAL_EPOCH
        self.number = 0
        """Counts the sessions with this broker; acquired records remember theirs."""
        self.partitions: Mapping[SharePartition, None] = {}
        """Those that the broker fetches for the member."""

    @property
    def is_open(self) -> bool:
        """Whether the broker has a session, as far as this side knows."""
        return self._epoch != INITIAL_EPOCH

    def fetch_request(
        self,
        wanted: Collection[SharePartition],
        acknowledgements: Acknowledgements,
        limits: FetchLimits,
        version: int,
    ) -> share_fetch.ShareFetchRequest:
        """Return the next ShareFetch, which has the session fetch the `wanted` partitions."""
        assert self.is_open or not acknowledgements, "a session cannot begin with acknowledgements"
        named = [each for each in wanted if not self.is_open or each not in self.partitions]
        gone = [each for each in self.partitions if each not in wanted] if self.is_open else []
        topics: dict[UUID, list[share_fetch.FetchPartition]] = {}
        for each in dict.fromkeys((*named, *acknowledgements)):
            found = acknowledgements.get(each)
            topics.setdefault(each.topic_id, []).append(
                share_fetch.FetchPartition(
                    partition_index=each.partition.partition,
                    acknowledgement_batches=_batches(share_fetch.AcknowledgementBatch, found),
                )
            )
        forgotten: dict[UUID, list[int]] = {}
        for each in gone:
            forgotten.setdefault(each.topic_id, []).append(each.partition.partition)
        self.partitions = dict.fromkeys(wanted)
        return share_fetch.ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            max_records=limits.max_records,
            batch_size=limits.max_records,
            share_acquire_mode=int(limits.is_strict and version >= _STRICT_FROM),
            topics=[
                share_fetch.FetchTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
            forgotten_topics_data=[
                share_fetch.ForgottenTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in forgotten.items()
            ],
        )

    def acknowledge_request(
        self, acknowledgements: Acknowledgements, *, closes: bool = False
    ) -> share_acknowledge.ShareAcknowledgeRequest:
        """Return a ShareAcknowledge in the open session; with `closes` it ends the session."""
        assert self.is_open, "no session to acknowledge in"
        topics: dict[UUID, list[share_acknowledge.AcknowledgePartition]] = {}
        for each, found in acknowledgements.items():
            topics.setdefault(each.topic_id, []).append(
                share_acknowledge.AcknowledgePartition(
                    partition_index=each.partition.partition,
                    acknowledgement_batches=_batches(share_acknowledge.AcknowledgementBatch, found),
                )
            )
        return share_acknowledge.ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=FINAL_EPOCH if closes else self._epoch,
            is_renew_ack=any(each.renews for each in acknowledgements.values()),
            topics=[
                share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )

    def answered(self) -> None:
        """Expect the next epoch, after a response without an error of the session."""
        self._epoch = next_epoch(self._epoch)

    def restart(self) -> None:
        """Open another session with the next request: the broker refused this one, or may have lost it."""
        self._epoch = INITIAL_EPOCH
        self.number += 1
        self.partitions = {}


def _batches(make: Callable[..., B], acknowledgements: PartitionAcknowledgements | None) -> list[B]:
    ranges = () if acknowledgements is None else acknowledgements.ranges
    return [
        make(
            first_offset=each.first,
            last_offset=each.last,
            acknowledge_types=[each.kind],
            release_delay_ms=each.delay_ms,
            reject_reason=each.reason or None,
        )
        for each in ranges
    ]
