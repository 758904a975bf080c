"""Gives coordinators the log of an internal topic: appends with acks=all, reads up to the log's end."""

from typing import Final

from kalda.broker.replicas.partition import ACKS_ALL, Partition
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.common.errors import ApiError, ErrorCode
from kalda.storage.errors import LOG_ERRORS
from kalda.storage.producer_state_manager import AppendOrigin
from kalda.storage.unified_log import FetchIsolation


class ReplicaLog:
    """An internal topic's replicas on this broker, as a `coordinator_shard.InternalLog` of the runtime."""

    def __init__(self, topic: str, replicas: ReplicaManager) -> None:
        self.topic: Final = topic
        self._name: Final = topic.encode()
        self._replicas: Final = replicas

    def append(self, partition: int, batch: bytearray) -> int:
        """Append one batch; return the new end offset.

        Raises:
            ApiError: it is not led here, too few replicas are in sync, or the log refuses it.
        """
        led = self._led(partition)
        try:
            info = self._replicas.append(led, memoryview(batch), ACKS_ALL, origin=AppendOrigin.COORDINATOR)
        except LOG_ERRORS as error:
            raise ApiError(error.code, str(error)) from error
        return info.last_offset + 1

    def start_offset(self, partition: int) -> int:
        """The first offset of the log."""
        return self._led(partition).log.log_start_offset

    def end_offset(self, partition: int) -> int:
        """The offset that the next record gets."""
        return self._led(partition).log.log_end_offset

    def high_watermark(self, partition: int) -> int:
        """The offset below which records are replicated."""
        return self._led(partition).log.high_watermark

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Batches from the one that holds `offset` or the next one on."""
        try:
            found = self._led(partition).log.read(offset, max_bytes, FetchIsolation.LOG_END)
            return found.records.read()
        except LOG_ERRORS as error:
            raise ApiError(error.code, str(error)) from error
        except OSError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _led(self, index: int) -> Partition:
        partition = self._replicas.find(self._name, index)
        if partition is None or not partition.is_leader:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"This broker does not lead {self.topic}-{index}."
            )
        return partition
