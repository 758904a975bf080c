"""Appends the markers of ended transactions to the logs that this broker leads.

A marker counts as written when it is replicated. A marker in ``__consumer_offsets`` also makes the group
coordinator apply or drop the offsets that the transaction committed.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from kalda.broker.internal_topics.internal_topics import InternalTopics
from kalda.broker.replicas.delayed_produce import DelayedProduce, ProduceWait
from kalda.broker.replicas.partition import ACKS_ALL
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.topics.topic_names import GROUP_METADATA_TOPIC
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.purgatory import DelayedOperationPurgatory
from kalda.common.turns import Steps
from kalda.common.types import TopicPartition
from kalda.coordinator.transaction.transaction_metadata import EPOCH_BUMP_FROM
from kalda.records.control import ControlRecordType, EndTransactionMarker, build_end_transaction_marker
from kalda.runtime.clock import Clock
from kalda.storage.errors import LOG_ERRORS
from kalda.storage.producer_state_manager import AppendOrigin

logger: Final = logging.getLogger(__name__)

Codes = dict[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a producer's transaction in some partitions."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...]
    transaction_version: int = 0
    """From 2 on, the end of the transaction raised the producer's epoch."""


class MarkerAppends:
    """Appends markers to the partitions that this broker leads."""

    def __init__(
        self,
        replicas: ReplicaManager,
        internal_topics: InternalTopics,
        produce_purgatory: DelayedOperationPurgatory,
        clock: Clock,
        *,
        timeout_ms: int,
    ) -> None:
        self._replicas: Final = replicas
        self._internal_topics: Final = internal_topics
        self._produce_purgatory: Final = produce_purgatory
        self._clock: Final = clock
        self._timeout_ms: Final = timeout_ms

    def write(self, markers: list[Marker], on_done: Callable[[list[Codes]], None]) -> None:
        """Append all markers and call `on_done` with the codes of each, in order, when all are replicated."""
        deque(self.write_in_steps(markers, on_done), maxlen=0)

    def write_in_steps(self, markers: list[Marker], on_done: Callable[[list[Codes]], None]) -> Steps[None]:
        """Do what `write` does in steps."""
        codes: list[Codes] = []
        waits: list[tuple[int, TopicPartition, ProduceWait]] = []
        for at, marker in enumerate(markers):
            results: Codes = {}
            codes.append(results)
            for topic_partition in marker.partitions:
                yield
                try:
                    wait = self._append(marker, topic_partition)
                except (ApiError, *LOG_ERRORS) as error:
                    results[topic_partition] = error.code
                    continue
                results[topic_partition] = ErrorCode.NONE
                if wait is not None:
                    waits.append((at, topic_partition, wait))
        if not waits:
            on_done(codes)
            return
        operation = DelayedProduce(
            self._timeout_ms,
            [wait for _, _, wait in waits],
            partial(_after_wait, codes, waits, on_done),
        )
        self._produce_purgatory.try_complete_else_watch(operation, operation.keys)

    def _append(self, marker: Marker, topic_partition: TopicPartition) -> ProduceWait | None:
        """Append one marker; return the wait for its replication, or None if it is replicated already."""
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"a marker has producer {marker.producer_id}, epoch {marker.producer_epoch}; they are >= 0",
            )
        partition = self._replicas.partition(topic_partition)
        control_type = ControlRecordType.COMMIT if marker.is_commit else ControlRecordType.ABORT
        batch = build_end_transaction_marker(
            EndTransactionMarker(control_type, marker.coordinator_epoch),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp=self._clock.time_ms(),
        )
        is_raised = marker.transaction_version >= EPOCH_BUMP_FROM
        origin = AppendOrigin.RAISED_EPOCH if is_raised else AppendOrigin.COORDINATOR
        info = self._replicas.append(partition, memoryview(batch), ACKS_ALL, origin=origin)
        if topic_partition.topic == GROUP_METADATA_TOPIC:
            self._internal_topics.complete_transaction(
                topic_partition.topic,
                topic_partition.partition,
                marker.producer_id,
                marker.producer_epoch,
                marker.is_commit,
            )
        if partition.log.high_watermark > info.last_offset:
            return None
        return ProduceWait(partition, info.last_offset + 1)


def _after_wait(
    codes: list[Codes],
    waits: list[tuple[int, TopicPartition, ProduceWait]],
    on_done: Callable[[list[Codes]], None],
) -> None:
    for at, topic_partition, wait in waits:
        codes[at][topic_partition] = wait.code
    on_done(codes)
