"""The controller's way to the brokers of its own process: a call instead of a request."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, TypeVar

from kalda.broker.config import ConfigStore
from kalda.broker.metadata_cache import MetadataCache
from kalda.broker.replica_manager import ReplicaManager
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import BrokerRequest, LeaderAndIsr, StopReplica, UpdateMetadata
from kalda.coordination.cluster import Cluster
from kalda.coordination.schema import BrokerInfo

PARTITIONS_PER_SLICE: Final = 50
"""Partitions between two turns of other requests. Making a log takes about half a millisecond."""

Request = TypeVar("Request", LeaderAndIsr, StopReplica)


class LocalChannel:
    """Delivers the controller's requests to one broker; a `kalda.controller.ports.BrokerChannel`."""

    def __init__(
        self,
        broker_id: int,
        cluster: Cluster,
        config_store: ConfigStore,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
    ) -> None:
        self._broker_id = broker_id
        self._cluster = cluster
        self._config_store = config_store
        self._replica_manager = replica_manager
        self._metadata_cache = metadata_cache

    async def send(self, broker: BrokerInfo, request: BrokerRequest) -> dict[TopicPartition, ErrorCode]:
        """Have the broker apply a request; see the port.

        Raises:
            ConnectionError: another broker than the local one is meant.
        """
        if broker.id != self._broker_id:
            raise ConnectionError(f"broker {broker.id} is not in this process, which runs {self._broker_id}")
        if isinstance(request, LeaderAndIsr):
            # A new topic's settings must be known before its logs are made.
            new = {each.topic for each in request.partitions if each.is_new}
            await self._config_store.load_topics(self._cluster, sorted(new))
            return await _in_slices(request, self._replica_manager.apply_leader_and_isr)
        if isinstance(request, StopReplica):
            return await _in_slices(request, self._replica_manager.apply_stop_replica)
        self._apply_metadata(request)
        return {}

    def _apply_metadata(self, request: UpdateMetadata) -> None:
        before = {each.topic for each in request.partitions}
        self._metadata_cache.apply(request)
        self._forget_configs(name for name in before if name not in self._metadata_cache)

    def _forget_configs(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._config_store.set_topic(topic, {})


async def _in_slices(
    request: Request, apply: Callable[[Request], dict[TopicPartition, ErrorCode]]
) -> dict[TopicPartition, ErrorCode]:
    """Apply a request slice by slice: thousands of logs must not keep everybody else waiting."""
    errors: dict[TopicPartition, ErrorCode] = {}
    # A request without partitions still tells the epoch of its controller.
    for start in range(0, max(1, len(request.partitions)), PARTITIONS_PER_SLICE):
        if start:
            await asyncio.sleep(0)
        errors.update(
            apply(replace(request, partitions=request.partitions[start : start + PARTITIONS_PER_SLICE]))
        )
    return errors
