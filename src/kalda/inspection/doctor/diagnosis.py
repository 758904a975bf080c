"""Runs all checks of `kalda doctor` on the gathered facts, and ranks the findings. Pure functions."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kalda.inspection.doctor import (
    balance_checks,
    broker_checks,
    client_checks,
    durability_checks,
    partition_checks,
    security_checks,
    settings_checks,
    version_checks,
)
from kalda.inspection.doctor.findings import Finding, ranked
from kalda.inspection.doctor.snapshot import ClusterSnapshot

ClusterCheck = Callable[[ClusterSnapshot], Iterator[Finding]]

CLUSTER_CHECKS: Final[Sequence[ClusterCheck]] = (
    partition_checks.check_offline,
    broker_checks.check_brokers_run,
    partition_checks.check_in_sync,
    broker_checks.check_log_dirs,
    security_checks.check_open_listeners,
    security_checks.check_passwords_in_clear,
    security_checks.check_certificates,
    client_checks.check_transactions,
    version_checks.check_clocks,
    version_checks.check_processes,
    durability_checks.check_min_in_sync,
    durability_checks.check_unclean_election,
    durability_checks.check_replication_factors,
    durability_checks.check_transaction_log,
    durability_checks.check_default_factor,
    security_checks.check_open_acls,
    security_checks.check_names_of_brokers,
    security_checks.check_open_znodes,
    balance_checks.check_reassignments,
    partition_checks.check_preferred_leaders,
    balance_checks.check_skew,
    balance_checks.check_racks,
    balance_checks.check_directories,
    version_checks.check_releases,
    version_checks.check_features,
    settings_checks.check_request_size,
    settings_checks.check_replica_fetch_size,
    settings_checks.check_retention_and_segments,
    settings_checks.check_retention_of_compacted,
    settings_checks.check_compaction,
    settings_checks.check_session_timeouts,
    settings_checks.check_offsets_retention,
    settings_checks.check_same_settings,
    settings_checks.check_for_tests,
    client_checks.check_groups,
)
"""In the order in which findings of one severity are shown."""


def examine_cluster(cluster: ClusterSnapshot) -> list[Finding]:
    """Return the problems of a cluster, the worst first."""
    return ranked(each for check in CLUSTER_CHECKS for each in check(cluster))
