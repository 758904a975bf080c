"""Registers the metrics of the group coordinator, under Kafka's names; rendering reads their values."""

from collections import Counter

from kalda.common.metrics import Column, Labels, Metrics, metric_name
from kalda.coordinator.group.classic.classic_group import GroupState
from kalda.coordinator.group.group import GroupType
from kalda.coordinator.group.group_coordinator import GroupCoordinator


def register_group_metrics(metrics: Metrics, coordinator: GroupCoordinator) -> None:
    """Register counts of groups and offsets, and counters of operations on them."""
    statistics = coordinator.statistics

    def manager(attribute: str) -> str:
        return metric_name("kafka.coordinator.group", "GroupMetadataManager", attribute)

    def events(attribute: str) -> str:
        return metric_name("kafka.server", "group-coordinator-metrics", attribute)

    metrics.gauge(
        manager("NumOffsets"), "Offsets committed in groups coordinated here.", coordinator.offset_count
    )

    def counts() -> list[tuple[Labels, list[float]]]:
        by_state = _states(coordinator)
        return [((), [by_state.total(), *(by_state[state.value] for state in GroupState)])]

    metrics.table(
        counts,
        Column(manager("NumGroups"), "gauge", "Classic groups coordinated here."),
        *(
            Column(manager(f"NumGroups{state.value}"), "gauge", f"Classic groups in the state {state.value}.")
            for state in GroupState
        ),
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
    return Counter(group.state_name for group in coordinator.groups() if group.kind is GroupType.CLASSIC)
