"""Writes checkpoints of consumer groups to a topic in the target, as MirrorMaker 2 does (KIP-382, KIP-545).

Clients that move to the target read there where their group goes on; Java's `RemoteClusterUtils` does.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kalda.clients.producer.producer import Producer
from kalda.common.types import TopicPartition
from kalda.pipelines.ledger.topic import read_compacted
from kalda.pipelines.mirror.delivery import Delivery
from kalda.pipelines.mirror.mirror_maker_records import (
    Checkpoint,
    MirrorMakerRecordError,
    read_checkpoint,
)

logger: Final = logging.getLogger(__name__)

_DELIVERY_TIMEOUT_S: Final = 180.0


class CheckpointTopic:
    """The topic of checkpoints of one mirror."""

    def __init__(self, topic: str, producer: Producer, delivery: Delivery) -> None:
        """Take a producer that the caller closes; the delivery uses the same."""
        self._topic: Final = topic
        self._producer: Final = producer
        self._delivery: Final = delivery
        self._written: Final[dict[tuple[str, TopicPartition], Checkpoint]] = {}

    def load(self, properties: Mapping[str, str]) -> None:
        """Read what was written before.

        Args:
            properties: settings of a consumer of the target.

        Raises:
            ClientError: the topic cannot be read.
        """
        for key, value in read_compacted(properties, self._topic):
            try:
                if value is not None:
                    self._remember(read_checkpoint(key, value))
            except MirrorMakerRecordError as error:
                logger.warning("topic %s: %s", self._topic, error)

    def write(self, checkpoints: Iterable[Checkpoint]) -> int:
        """Write what is new; return how many checkpoints that is.

        A checkpoint goes back only with its group: a later copy of records can have later offsets. One that
        no record can hold is left out, for example with metadata of more than 32,767 bytes.

        Raises:
            ClientError: the topic cannot be written.
        """
        changed = list(self._encoded(each for each in checkpoints if self._is_news(each)))
        if changed:
            with self._delivery.unit():
                sent = [
                    self._producer.send(self._topic, value, key=key, partition=0) for _, key, value in changed
                ]
            for (each, _, _), future in zip(changed, sent, strict=True):
                future.result(_DELIVERY_TIMEOUT_S)
                self._remember(each)
        return len(changed)

    def _encoded(self, checkpoints: Iterable[Checkpoint]) -> Iterator[tuple[Checkpoint, bytes, bytes]]:
        for each in checkpoints:
            try:
                yield each, each.key(), each.value()
            except MirrorMakerRecordError as error:
                logger.warning("the checkpoint of group %.100s is not written: %s", each.group, error)
                # Once for each offset of the group, not with each round.
                self._remember(each)

    def _is_news(self, checkpoint: Checkpoint) -> bool:
        last = self._written.get((checkpoint.group, checkpoint.partition))
        if last is None:
            return True
        return checkpoint.upstream < last.upstream or checkpoint.downstream > last.downstream

    def _remember(self, checkpoint: Checkpoint) -> None:
        self._written[checkpoint.group, checkpoint.partition] = checkpoint
