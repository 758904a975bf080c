"""Looks up the high watermarks of partitions, on this broker or at their leaders, for the lag of share
groups."""

from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.common.types import TopicPartition, by_topic
from kalda.net.peer.dialer import Dialer
from kalda.net.peer.peer_batches import PeerBatches
from kalda.net.peer.peer_connection import PeerConnection
from kalda.protocol.messages.list_offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kalda.runtime.random import Random

_CONSUMER: Final = -1


class _Question:
    """Asks for the high watermark of a partition."""

    __slots__ = ("answer", "partition")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition: Final = partition
        self.answer: Final[Pending[int | None]] = Pending()


class EndOffsets:
    """The high watermarks of partitions; `run` sends the questions to other brokers."""

    def __init__(
        self,
        broker_id: int,
        cache: MetadataCache,
        replicas: ReplicaManager,
        dialer: Dialer,
        random: Random,
        *,
        listener: str,
        timeout_ms: int,
    ) -> None:
        self._cache: Final = cache
        self._replicas: Final = replicas
        self._timeout_seconds: Final = timeout_ms / 1000
        self._peers: Final = PeerBatches[_Question](
            "end offsets of share groups",
            dialer,
            broker_id,
            cache,
            random,
            listener=listener,
            timeout_ms=timeout_ms,
            request=self._request,
            failed=_fail_all,
        )

    def get(self, partition: TopicPartition) -> Pending[int | None]:
        """Return the high watermark of a partition, None if its leader does not answer."""
        hosted = self._replicas.partitions.get(partition)
        if hosted is not None and hosted.is_leader:
            return Pending.of(hosted.log.high_watermark)
        led = self._cache.partition(partition)
        if led is None or led.leader < 0:
            return Pending.of(None)
        question = _Question(partition)
        self._peers.submit(led.leader, question)
        return question.answer

    async def run(self) -> None:
        """Send questions, until cancelled."""
        await self._peers.run()

    async def _request(self, connection: PeerConnection, questions: list[_Question]) -> None:
        # A request names a partition once.
        by_partition: dict[TopicPartition, list[_Question]] = {}
        for each in questions:
            by_partition.setdefault(each.partition, []).append(each)
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=each.partition,
                            current_leader_epoch=-1,
                            timestamp=LATEST_TIMESTAMP,
                        )
                        for each in partitions
                    ],
                )
                for topic, partitions in by_topic(by_partition).items()
            ],
        )
        try:
            response = await connection.request(request, timeout_seconds=self._timeout_seconds)
        except ConnectionError:
            _fail_all(questions)
            connection.close()
            return
        found: dict[TopicPartition, int] = {}
        if isinstance(response, ListOffsetsResponse):
            found = {
                TopicPartition(topic.name, each.partition_index): each.offset
                for topic in response.topics
                for each in topic.partitions
                if each.error_code == ErrorCode.NONE
            }
        for each in questions:
            each.answer.complete(found.get(each.partition))


def _fail_all(questions: list[_Question]) -> None:
    for each in questions:
        each.answer.complete(None)
