"""Builds the parts of share groups when a broker first uses them: `LazyShare`.

Few clusters have share groups, but their modules cost a broker processor time at its start, and memory. So
only this module is imported at the start. The rest follows with the first request that is about share groups,
or when this broker leads a partition of their state.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kalda.broker.context.service_tasks import ServiceTasks
from kalda.broker.internal_topics.internal_topics import InternalTopics
from kalda.broker.topics.topic_names import SHARE_GROUP_STATE_TOPIC
from kalda.common.metrics import Metrics
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.coordinator.runtime.coordinator_runtime import CoordinatorRuntime, RuntimeConfig
from kalda.coordinator.share.share_config import ShareCoordinatorConfig
from kalda.records.compression import Compression

if TYPE_CHECKING:
    from kalda.broker.share.assembly import Share
    from kalda.coordinator.share.share_shard import ShareShard


def build_share_runtime(
    internal_topics: InternalTopics, config: ShareCoordinatorConfig, metrics: Metrics
) -> "CoordinatorRuntime[ShareShard]":
    """Make the runtime of the topic with the state of share groups."""

    def make_shard(number: int) -> "ShareShard":
        from kalda.coordinator.share.share_shard import ShareShard

        return ShareShard(number, config)

    runtime_config = RuntimeConfig(
        name=SHARE_GROUP_STATE_TOPIC,
        load_buffer_bytes=config.share_coordinator_load_buffer_size,
        compression=Compression.from_id(config.share_coordinator_state_topic_compression_codec),
        write_timeout_ms=config.share_coordinator_write_timeout_ms,
    )
    return internal_topics.add(make_shard, runtime_config, metrics)


class LazyShare:
    """Makes the parts of share groups when they are first used."""

    def __init__(
        self, config: ShareCoordinatorConfig, groups: GroupCoordinator, build: "Callable[[], Share]"
    ) -> None:
        """`build` makes the parts, and may import what it needs."""
        self._config: Final = config
        self._build: Final = build
        self._tasks: ServiceTasks | None = None
        self.made: Share | None = None
        """The parts, None before their first use."""
        groups.delete_share_state = lambda group_id: self.parts.groups.delete_state(group_id)
        groups.forget_share_topics = lambda found, topics: self.parts.groups.on_topics_deleted(found, topics)

    @property
    def parts(self) -> "Share":
        """The parts, which are made where they are not yet."""
        if self.made is None:
            self.made = self._build()
            self._run()
        return self.made

    def run(self, tasks: ServiceTasks) -> None:
        """Start the background work of share groups, once there are the parts."""
        self._tasks = tasks
        self._run()

    def _run(self) -> None:
        if self.made is not None and self._tasks is not None:
            self.made.run(self._tasks, self._config)
