"""Implements `Admin`, the synchronous admin client: the methods of `AsyncAdmin`, run on a loop thread.

It decides nothing: its methods are derived from those of `AsyncAdmin`.
"""

import weakref
from collections.abc import Coroutine
from typing import Any, Final, TypeVar, Unpack

from kalda.clients.admin.admin_config import AdminConfig, AdminOptions
from kalda.clients.admin.async_admin import AdminBase, AsyncAdmin
from kalda.clients.config.settings_help import lists_settings
from kalda.clients.facade import BlockingClient, blocking
from kalda.clients.loop_thread import LoopThread
from kalda.clients.metrics.registry import MetricValues
from kalda.clients.reprs import client_repr
from kalda.common.public import public

T = TypeVar("T")


@public
@lists_settings(AdminConfig)
class Admin(AdminBase, BlockingClient[AsyncAdmin]):
    """The admin client for programs without asyncio; see `AsyncAdmin` for what it does.

        with Admin(bootstrap_servers="localhost:9092") as admin:
            admin.create_topics([NewTopic("flights", partitions=4, replication_factor=1)])

    Any number of threads may use one instance. A call returns when each of its things has a result or an
    error.

    Args:
        options: The settings of `AdminConfig`, Kafka's names in snake case, e.g. ``request_timeout_ms=5000``.

    Raises:
        ClientConfigError: a setting is unknown (the message offers the nearest name) or has a bad value.
    """

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        self._inner = AsyncAdmin(**options)
        self._thread: Final = LoopThread("kalda-admin")
        self._finalizer: Final = weakref.finalize(self, _abandon, self._inner, self._thread)
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        inner = vars(self).get("_inner")
        state = "closed" if "_finalizer" not in vars(self) or self._thread.is_closed else "open"
        return client_repr(self, None if inner is None else inner._client.config, state)

    def close(self, timeout_s: float = 5.0) -> None:
        """Close the connections and end the thread; calls under way fail. A second call does nothing.

        In a fork, where the client belongs to the parent, it only marks the child's copy as closed.

        Args:
            timeout_s: How long the call may take at most.
        """
        self._finalizer.detach()
        try:
            if self._thread.is_usable:
                self._thread.call(self._inner.close(timeout_s), timeout_s)
        finally:
            self._thread.close()

    def _run(self, coroutine: Coroutine[Any, Any, T], *args: Any, **options: Any) -> T:
        return self._thread.call(coroutine)

    def metrics(self) -> MetricValues:
        """Return the present values of all metrics; see `AsyncAdmin.metrics`."""
        return self._inner.metrics()

    client_instance_id = blocking(AsyncAdmin.client_instance_id)
    create_topics = blocking(AsyncAdmin.create_topics)
    delete_topics = blocking(AsyncAdmin.delete_topics)
    list_topics = blocking(AsyncAdmin.list_topics)
    describe_topics = blocking(AsyncAdmin.describe_topics)
    create_partitions = blocking(AsyncAdmin.create_partitions)
    describe_configs = blocking(AsyncAdmin.describe_configs)
    incremental_alter_configs = blocking(AsyncAdmin.incremental_alter_configs)
    list_client_metrics_resources = blocking(AsyncAdmin.list_client_metrics_resources)
    list_config_resources = blocking(AsyncAdmin.list_config_resources)
    list_groups = blocking(AsyncAdmin.list_groups)
    list_consumer_groups = blocking(AsyncAdmin.list_consumer_groups)
    describe_consumer_groups = blocking(AsyncAdmin.describe_consumer_groups)
    describe_classic_groups = blocking(AsyncAdmin.describe_classic_groups)
    delete_consumer_groups = blocking(AsyncAdmin.delete_consumer_groups)
    remove_members_from_consumer_group = blocking(AsyncAdmin.remove_members_from_consumer_group)
    list_consumer_group_offsets = blocking(AsyncAdmin.list_consumer_group_offsets)
    alter_consumer_group_offsets = blocking(AsyncAdmin.alter_consumer_group_offsets)
    delete_consumer_group_offsets = blocking(AsyncAdmin.delete_consumer_group_offsets)
    describe_share_groups = blocking(AsyncAdmin.describe_share_groups)
    list_share_group_offsets = blocking(AsyncAdmin.list_share_group_offsets)
    alter_share_group_offsets = blocking(AsyncAdmin.alter_share_group_offsets)
    delete_share_group_offsets = blocking(AsyncAdmin.delete_share_group_offsets)
    list_offsets = blocking(AsyncAdmin.list_offsets)
    delete_records = blocking(AsyncAdmin.delete_records)
    elect_leaders = blocking(AsyncAdmin.elect_leaders)
    alter_partition_reassignments = blocking(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = blocking(AsyncAdmin.list_partition_reassignments)
    describe_cluster = blocking(AsyncAdmin.describe_cluster)
    describe_api_versions = blocking(AsyncAdmin.describe_api_versions)
    describe_features = blocking(AsyncAdmin.describe_features)
    update_features = blocking(AsyncAdmin.update_features)
    describe_faults = blocking(AsyncAdmin.describe_faults)
    alter_faults = blocking(AsyncAdmin.alter_faults)
    describe_events = blocking(AsyncAdmin.describe_events)
    describe_processes = blocking(AsyncAdmin.describe_processes)
    describe_log_dirs = blocking(AsyncAdmin.describe_log_dirs)
    describe_replica_log_dirs = blocking(AsyncAdmin.describe_replica_log_dirs)
    alter_replica_log_dirs = blocking(AsyncAdmin.alter_replica_log_dirs)
    list_transactions = blocking(AsyncAdmin.list_transactions)
    describe_transactions = blocking(AsyncAdmin.describe_transactions)
    describe_producers = blocking(AsyncAdmin.describe_producers)
    abort_transaction = blocking(AsyncAdmin.abort_transaction)
    describe_user_scram_credentials = blocking(AsyncAdmin.describe_user_scram_credentials)
    alter_user_scram_credentials = blocking(AsyncAdmin.alter_user_scram_credentials)
    describe_client_quotas = blocking(AsyncAdmin.describe_client_quotas)
    alter_client_quotas = blocking(AsyncAdmin.alter_client_quotas)
    describe_acls = blocking(AsyncAdmin.describe_acls)
    create_acls = blocking(AsyncAdmin.create_acls)
    delete_acls = blocking(AsyncAdmin.delete_acls)
    create_delegation_token = blocking(AsyncAdmin.create_delegation_token)
    renew_delegation_token = blocking(AsyncAdmin.renew_delegation_token)
    expire_delegation_token = blocking(AsyncAdmin.expire_delegation_token)
    describe_delegation_tokens = blocking(AsyncAdmin.describe_delegation_tokens)
    fence_producers = blocking(AsyncAdmin.fence_producers)
    force_terminate_transaction = blocking(AsyncAdmin.force_terminate_transaction)


def _abandon(admin: AsyncAdmin, thread: LoopThread) -> None:
    """Close the connections and end the thread of a client that was dropped without `close`."""
    thread.close_soon(admin.close(0.0))
