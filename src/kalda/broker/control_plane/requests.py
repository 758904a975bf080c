"""What a broker does when the controller tells it something, wherever the controller runs.

One request at a time, in the order of arrival: a LeaderAndIsr gives others their turn between slices, and a
second request that came meanwhile must not overtake it. What a maintainer must not break: a request of a
replaced controller, or one meant for this broker before its restart, changes nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import Final, TypeVar, assert_never

from kalda.broker.config import ConfigStore
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.replicas.role_changes import RoleChanges
from kalda.broker.topics.topic_names import topic_name_problem
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import BrokerRequest, LeaderAndIsr, StopReplica, UpdateMetadata
from kalda.zk.client.cluster_store import ClusterStore
from kalda.zk.client.zookeeper_errors import ZooKeeperError

logger: Final = logging.getLogger(__name__)

PARTITIONS_PER_SLICE: Final = 50
"""Partitions between two turns of other requests. Making a log takes about half a millisecond."""

_TOLD_MAX: Final = 5
"""A line of the log stays readable, whoever sent the request."""

Request = TypeVar("Request", LeaderAndIsr, StopReplica)


class ControllerRequests:
    """Applies the controller's requests to one broker."""

    def __init__(
        self,
        cluster: ClusterStore,
        config_store: ConfigStore,
        roles: RoleChanges,
        metadata_cache: MetadataCache,
        *,
        has_log: Callable[[TopicPartition], bool],
        broker_epoch: Callable[[], int],
    ) -> None:
        """`broker_epoch` tells the epoch of this broker's registration, -1 before the first."""
        self._cluster: Final = cluster
        self._config_store: Final = config_store
        self._roles: Final = roles
        self._metadata_cache: Final = metadata_cache
        self._has_log: Final = has_log
        self._broker_epoch: Final = broker_epoch
        # First come, first served, as asyncio's locks are.
        self._turn: Final = asyncio.Lock()
        self._controller_epoch = 0
        """The newest epoch that any request named."""
        self._metadata_epoch = -1
        """The broker epoch that the newest full UpdateMetadata was meant for, -1 before the first."""
        self._metadata_came: Final = asyncio.Event()
        self._unfollow: Callable[[Iterable[TopicPartition]], None] | None = None
        """Set once this broker is about to stop."""

    def follow_no_more(self, unfollow: Callable[[Iterable[TopicPartition]], None]) -> None:
        """Follow nobody anew: this broker is about to stop, and `unfollow` ends what a request begins.

        A leader that hands over is told to follow the next one. If it did, it would be in sync again by the
        time it goes, and producers would wait for it until the controller has noticed.
        """
        self._unfollow = unfollow

    async def wait_metadata(self) -> None:
        """Return when this broker knows every partition of the cluster, as of its present registration.

        What a controller sent to this broker before its restart does not count: that may be long out of date.
        """
        while self._metadata_epoch < self._broker_epoch():
            self._metadata_came.clear()
            await self._metadata_came.wait()

    async def apply(self, request: BrokerRequest, broker_epoch: int = -1) -> dict[TopicPartition, ErrorCode]:
        """Apply a request and return what went wrong with which partition.

        `broker_epoch` is the one that the request names, -1 for none.

        Raises:
            ApiError: STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH, nothing was changed;
                BROKER_NOT_AVAILABLE, coordination could not be asked: try again.
        """
        async with self._turn:
            self._check(request, broker_epoch)
            if isinstance(request, LeaderAndIsr):
                request, errors = _without_impossible(request)
                await self._load_configs(request)
                return errors | await _in_slices(request, self._apply_roles)
            if isinstance(request, StopReplica):
                return await _in_slices(request, self._roles.apply_stop_replica)
            if isinstance(request, UpdateMetadata):
                self._apply_metadata(request)
                if request.is_full:
                    self._roles.set_unassigned_strays_aside(self._metadata_cache.topic_id)
                    # One of an old version names no broker epoch, so it counts for the present registration.
                    self._metadata_epoch = max(broker_epoch, self._broker_epoch())
                    self._metadata_came.set()
                return {}
            assert_never(request)

    def _check(self, request: BrokerRequest, broker_epoch: int) -> None:
        name = type(request).__name__
        ours = self._broker_epoch()
        # A higher one than ours is no error: the controller may see a registration before its owner does.
        if -1 < broker_epoch < ours:
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"{name} of controller {request.controller_id} is for broker epoch {broker_epoch}, "
                f"but this is {ours}",
            )
        if request.controller_epoch < self._controller_epoch:
            raise ApiError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"{name} of controller {request.controller_id} has epoch {request.controller_epoch}, "
                f"but {self._controller_epoch} is known already",
            )
        self._controller_epoch = request.controller_epoch

    async def _load_configs(self, request: LeaderAndIsr) -> None:
        """Read the settings of topics that are new here, before their logs are made."""
        # Settings of topics with logs were read at the start, and changes are told; but a topic's creation is
        # no change.
        new = {
            each.topic
            for each in request.partitions
            if each.is_new or not self._has_log(each.topic_partition)
        }
        try:
            await self._config_store.load_topics(self._cluster, sorted(new))
        except ZooKeeperError as error:
            raise ApiError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"the settings of new topics cannot be read: {error}"
            ) from error

    def _apply_roles(self, request: LeaderAndIsr) -> dict[TopicPartition, ErrorCode]:
        errors = self._roles.apply_leader_and_isr(request)
        if self._unfollow is not None:
            self._unfollow([each.topic_partition for each in request.partitions])
        return errors

    def _apply_metadata(self, request: UpdateMetadata) -> None:
        named = {each.topic for each in request.partitions}
        self._metadata_cache.apply(request)
        for topic in named:
            if topic not in self._metadata_cache:
                self._config_store.set_topic(topic, {})


def _without_impossible(request: LeaderAndIsr) -> tuple[LeaderAndIsr, dict[TopicPartition, ErrorCode]]:
    """Leave out partitions that cannot exist: a log is made at a path with the topic's name in it."""
    errors = {
        each.topic_partition: ErrorCode.INVALID_TOPIC_EXCEPTION
        for each in request.partitions
        if each.partition < 0 or topic_name_problem(each.topic) is not None
    }
    if not errors:
        return request, errors
    logger.warning(
        "partitions that no topic can have are not served, sent by controller %d: %s",
        request.controller_id,
        ", ".join(f"{each.topic!a:.50}-{each.partition}" for each in islice(errors, _TOLD_MAX)),
    )
    possible = [each for each in request.partitions if each.topic_partition not in errors]
    return replace(request, partitions=possible), errors


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
