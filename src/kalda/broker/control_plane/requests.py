"""Applies the requests of the controller to this broker, wherever the controller runs.

Requests are applied one at a time in the order of arrival: LeaderAndIsr yields to the event loop between
slices, and a later request must not overtake it. A request of a replaced controller,
or one that was sent to this broker before its restart, changes nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, TypeVar, assert_never

from kalda.broker.config import ConfigStore
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.replicas.role_changes import RoleChanges
from kalda.broker.topics.topic_names import topic_name_problem
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.schema import LEADER_DURING_DELETE
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import Steps, Turns
from kalda.common.types import TopicPartition
from kalda.controller.effects import (
    BrokerRequest,
    LeaderAndIsr,
    PartitionLeadership,
    StopReplica,
    UpdateMetadata,
)
from kalda.zookeeper.errors import ZooKeeperError

logger: Final = logging.getLogger(__name__)

PARTITIONS_PER_SLICE: Final = 10
"""Partitions applied in one turn of the loop. Creating a log takes about half a millisecond."""

METADATA_PER_SLICE: Final = 100
"""Partitions whose metadata is replaced at once, or those of a topic that has more."""

_TOPICS_PER_SLICE: Final = 64
"""Topics whose settings are read at once."""

_PARTITIONS_PER_STEP: Final = 32

_NAMES_MAX: Final = 5
"""Partitions named in one line of the log."""

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
        """`broker_epoch` returns the epoch of this broker's registration, -1 before the first."""
        self._cluster: Final = cluster
        self._config_store: Final = config_store
        self._roles: Final = roles
        self._metadata_cache: Final = metadata_cache
        self._has_log: Final = has_log
        self._broker_epoch: Final = broker_epoch
        # asyncio's locks are fair, so waiting requests keep their order.
        self._turn: Final = asyncio.Lock()
        self._controller_epoch = 0
        """The newest epoch of any request; it never decreases."""
        self._metadata_epoch = -1
        """The broker epoch that the newest full UpdateMetadata was sent to, -1 before the first."""
        self._metadata_came: Final = asyncio.Event()
        self._listed: Final[set[str]] = set()
        """The topics that this controller sent since its last full UpdateMetadata, or for the next one."""
        self._unfollow: Callable[[Iterable[TopicPartition]], None] | None = None
        """Stops following partitions; set once this broker shuts down."""

    def stop_following(self, unfollow: Callable[[Iterable[TopicPartition]], None]) -> None:
        """Make this broker, which shuts down, follow no further leader: `unfollow` ends each new fetch.

        The controller makes a leader that moves its leadership a follower. If it fetched, it would be in sync
        again when it stops, and producers would wait for it until the controller removes it from the ISR.
        """
        self._unfollow = unfollow

    async def wait_metadata(self) -> None:
        """Wait until this broker has the metadata of every partition, sent to its present registration.

        Metadata that a controller sent before this broker's restart may be outdated and does not count.
        """
        while self._metadata_epoch < self._broker_epoch():
            self._metadata_came.clear()
            await self._metadata_came.wait()

    async def apply(self, request: BrokerRequest, broker_epoch: int = -1) -> dict[TopicPartition, ErrorCode]:
        """Apply a request and return the partitions that failed, with their errors.

        `broker_epoch` is the epoch in the request, -1 for none.

        Raises:
            ApiError: STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH, nothing was changed;
                BROKER_NOT_AVAILABLE, ZooKeeper did not answer and the controller may retry.
        """
        async with self._turn:
            self._check(request, broker_epoch)
            if isinstance(request, LeaderAndIsr):
                possible, errors = await Turns.of_brokers().result(_without_impossible(request))
                await self._load_configs(possible)
                return errors | await _in_slices(possible, self._apply_roles)
            if isinstance(request, StopReplica):
                return await _in_slices(request, self._roles.apply_stop_replica)
            if isinstance(request, UpdateMetadata):
                await self._apply_metadata(request)
                if request.is_full:
                    await self._drop_unlisted(request)
                    self._roles.leave_unassigned(self._metadata_cache.topic)
                if request.is_full is not False:
                    self._roles.set_unassigned_strays_aside(self._metadata_cache.topic_id)
                    # An old version has no broker epoch, so it counts for the present registration.
                    self._metadata_epoch = max(broker_epoch, self._broker_epoch())
                    self._metadata_came.set()
                return {}
            assert_never(request)

    def _check(self, request: BrokerRequest, broker_epoch: int) -> None:
        name = type(request).__name__
        ours = self._broker_epoch()
        # A higher epoch is valid: the controller may see a registration before its owner does.
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
        if request.controller_epoch > self._controller_epoch:
            self._listed.clear()
        self._controller_epoch = request.controller_epoch

    async def _load_configs(self, request: LeaderAndIsr) -> None:
        """Read the settings of topics that are new on this broker, before their logs are created."""
        # Settings of existing logs were read at the start and later changes are notified, but the creation of
        # a topic causes no notification.
        new: dict[str, None] = {}
        for index, each in enumerate(request.partitions, 1):
            if index % METADATA_PER_SLICE == 0:
                await asyncio.sleep(0)
            if each.is_new or not self._has_log(each.topic_partition):
                new[each.topic] = None
        names = list(new)
        try:
            for start in range(0, len(names), _TOPICS_PER_SLICE):
                some = sorted(names[start : start + _TOPICS_PER_SLICE])
                await self._config_store.load_topics(self._cluster, some)
        except ZooKeeperError as error:
            raise ApiError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"the settings of new topics cannot be read: {error}"
            ) from error

    def _apply_roles(self, request: LeaderAndIsr) -> dict[TopicPartition, ErrorCode]:
        errors = self._roles.apply_leader_and_isr(request)
        if self._unfollow is not None:
            self._unfollow([each.topic_partition for each in request.partitions])
        return errors

    async def _apply_metadata(self, request: UpdateMetadata) -> None:
        """Apply some topics after the other; a topic is updated as a whole, as clients see it."""
        self._metadata_cache.apply_brokers(request)
        for index, partitions in enumerate(_topics_in_slices(request.partitions)):
            if index:
                await asyncio.sleep(0)
            await Turns.of_brokers().result(self._metadata_cache.apply_partitions(partitions))
            for topic in dict.fromkeys(each.topic for each in partitions):
                if topic in self._metadata_cache:
                    self._listed.add(topic)
                else:
                    self._listed.discard(topic)
                    self._config_store.set_topic(topic, {})

    async def _drop_unlisted(self, request: UpdateMetadata) -> None:
        """Remove the topics from the metadata that are not in a full request, of which this is the last part.

        They were deleted while the controller of that time could not reach this broker.
        """
        gone = [topic for topic in self._metadata_cache.all_topics() if topic.name not in self._listed]
        self._listed.clear()
        deleted = [
            replace(each, leader=LEADER_DURING_DELETE) for topic in gone for each in topic.partitions.values()
        ]
        if deleted:
            await self._apply_metadata(replace(request, partitions=deleted))


def _topics_in_slices(partitions: Sequence[PartitionLeadership]) -> Iterator[Sequence[PartitionLeadership]]:
    """Yield the partitions of whole topics, some at a time; nothing once, if there are none."""
    start, topic = 0, ""
    for index, each in enumerate(partitions):
        if each.topic != topic:
            if index - start >= METADATA_PER_SLICE:
                yield partitions[start:index]
                start = index
            topic = each.topic
    yield partitions[start:]


def _without_impossible(
    request: LeaderAndIsr,
) -> Steps[tuple[LeaderAndIsr, dict[TopicPartition, ErrorCode]]]:
    """Remove partitions that cannot exist: the path of a log contains the topic's name."""
    errors: dict[TopicPartition, ErrorCode] = {}
    for number, each in enumerate(request.partitions):
        if number % _PARTITIONS_PER_STEP == _PARTITIONS_PER_STEP - 1:
            yield
        if each.partition < 0 or topic_name_problem(each.topic) is not None:
            errors[each.topic_partition] = ErrorCode.INVALID_TOPIC_EXCEPTION
    if not errors:
        return request, errors
    logger.warning(
        "controller %d sent partitions with invalid names, which are not served: %s",
        request.controller_id,
        ", ".join(f"{each.topic!a:.50}-{each.partition}" for each in islice(errors, _NAMES_MAX)),
    )
    possible = [each for each in request.partitions if each.topic_partition not in errors]
    return replace(request, partitions=possible), errors


async def _in_slices(
    request: Request, apply: Callable[[Request], dict[TopicPartition, ErrorCode]]
) -> dict[TopicPartition, ErrorCode]:
    """Apply a request slice by slice, so that thousands of partitions do not block the event loop."""
    errors: dict[TopicPartition, ErrorCode] = {}
    # A request without partitions still carries the epoch of its controller.
    for start in range(0, max(1, len(request.partitions)), PARTITIONS_PER_SLICE):
        if start:
            await asyncio.sleep(0)
        errors.update(
            apply(replace(request, partitions=request.partitions[start : start + PARTITIONS_PER_SLICE]))
        )
    return errors
