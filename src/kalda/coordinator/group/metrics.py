"""What the group coordinator publishes, under Kafka's names; everything is read when metrics are rendered."""

from collections import Counter
from typing import Final

from kalda.common.metrics import Metrics, metric_name
from kalda.coordinator.group.classic.group import GroupState
from kalda.coordinator.group.coordinator import GroupCoordinator
from kalda.coordinator.group.group import GroupKind

__all__ = ["register_group_metrics"]

_COUNTED_STATES: Final = tuple(GroupState)


def register_group_metrics(metrics: Metrics, coordinator: GroupCoordinator) -> None:
    """Publish counts of groups and offsets, and what was done with them."""
    statistics = coordinator.statistics

    def manager(attribute: str) -> str:
        return metric_name("kafka.coordinator.group", "GroupMetadataManager", attribute)

    def events(attribute: str) -> str:
        return metric_name("kafka.server", "group-coordinator-metrics", attribute)

    metrics.gauge(
        manager("NumOffsets"), "Offsets committed in groups coordinated here.", coordinator.offset_count
    )
    metrics.gauge(
        manager("NumGroups"), "Classic groups coordinated here.", lambda: sum(_states(coordinator).values())
    )
    for state in _COUNTED_STATES:

        def count(name: str = state.value) -> float:
            return _states(coordinator)[name]

        metrics.gauge(
            manager(f"NumGroups{state.value}"), f"Classic groups in the state {state.value}.", count
        )
    counter = metrics.counter_function
    counter(events("offset-commit-count"), "Offsets committed.", lambda: statistics.offset_commits)
    counter(events("offset-expiration-count"), "Offsets that expired.", lambda: statistics.offset_expirations)
    counter(
        events("offset-deletion-count"),
        "Offsets deleted by request or with their topics.",
        lambda: statistics.offset_deletions,
    )
    counter(
        events("group-completed-rebalance-count"),
        "Rebalances of classic groups that ended with an assignment.",
        lambda: statistics.completed_rebalances,
    )


def _states(coordinator: GroupCoordinator) -> Counter[str]:
    return Counter(group.state_name for group in coordinator.groups() if group.kind is GroupKind.CLASSIC)
