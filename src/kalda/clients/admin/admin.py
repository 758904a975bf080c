"""Implements `Admin`, the synchronous admin client: the methods of `AsyncAdmin`, run on a loop thread.

It decides nothing. `_blocking` derives a method from the asynchronous one, with its name, signature and
docstring, so that both classes document and type the same interface in one place.
"""

import weakref
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from types import TracebackType
from typing import Concatenate, Final, NoReturn, ParamSpec, Self, TypeVar, Unpack, cast

from kalda.clients.admin.admin_config import AdminConfig
from kalda.clients.admin.admin_options import AdminOptions
from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.config.properties_source import PropertiesSource, properties_of
from kalda.clients.config.settings_help import lists_settings
from kalda.clients.loop_thread import LoopThread
from kalda.clients.metrics.registry import MetricValues
from kalda.clients.reprs import client_repr
from kalda.common.public import public

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[AsyncAdmin, P], Coroutine[object, object, T]],
) -> Callable[Concatenate["Admin", P], T]:
    """Return the synchronous form of a method: it waits until the result is there."""

    def call(self: "Admin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(method(self._admin, *args, **kwargs))

    update_wrapper(call, method)
    return call


@public
@lists_settings(AdminConfig)
class Admin:
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
        self._admin: Final = AsyncAdmin(**options)
        self._thread: Final = LoopThread("kalda-admin")
        self._finalizer: Final = weakref.finalize(self, _abandon, self._admin, self._thread)
        self._finalizer.atexit = False

    @classmethod
    def from_config(cls, config: PropertiesSource, **options: Unpack[AdminOptions]) -> Self:
        """Create a client from Kafka's dotted names, or the path of a ``client.properties`` file.

        Settings in `options` win.

        Raises:
            ClientConfigError: as for the class.
        """
        return cls(**cast(AdminOptions, {**AdminConfig.options_of(properties_of(config)), **options}))

    def __repr__(self) -> str:
        inner = vars(self).get("_admin")
        state = "closed" if "_finalizer" not in vars(self) or self._thread.is_closed else "open"
        return client_repr(self, None if inner is None else inner._client.config, state)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Admin cannot be pickled: it has connections; create one in each process")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self, timeout_s: float = 5.0) -> None:
        """Close the connections and end the thread; calls under way fail. A second call does nothing.

        In a fork, where the client belongs to the parent, it only marks the child's copy as closed.

        Args:
            timeout_s: How long the call may take at most.
        """
        self._finalizer.detach()
        try:
            if self._thread.is_usable:
                self._thread.call(self._admin.close(timeout_s), timeout_s)
        finally:
            self._thread.close()

    def _call(self, coroutine: Coroutine[object, object, T]) -> T:
        return self._thread.call(coroutine)

    def metrics(self) -> MetricValues:
        """Return the present values of all metrics; see `AsyncAdmin.metrics`."""
        return self._admin.metrics()

    client_instance_id = _blocking(AsyncAdmin.client_instance_id)
    create_topics = _blocking(AsyncAdmin.create_topics)
    delete_topics = _blocking(AsyncAdmin.delete_topics)
    list_topics = _blocking(AsyncAdmin.list_topics)
    describe_topics = _blocking(AsyncAdmin.describe_topics)
    create_partitions = _blocking(AsyncAdmin.create_partitions)
    describe_configs = _blocking(AsyncAdmin.describe_configs)
    incremental_alter_configs = _blocking(AsyncAdmin.incremental_alter_configs)
    list_client_metrics_resources = _blocking(AsyncAdmin.list_client_metrics_resources)
    list_config_resources = _blocking(AsyncAdmin.list_config_resources)
    list_groups = _blocking(AsyncAdmin.list_groups)
    list_consumer_groups = _blocking(AsyncAdmin.list_consumer_groups)
    describe_consumer_groups = _blocking(AsyncAdmin.describe_consumer_groups)
    describe_classic_groups = _blocking(AsyncAdmin.describe_classic_groups)
    delete_consumer_groups = _blocking(AsyncAdmin.delete_consumer_groups)
    remove_members_from_consumer_group = _blocking(AsyncAdmin.remove_members_from_consumer_group)
    list_consumer_group_offsets = _blocking(AsyncAdmin.list_consumer_group_offsets)
    alter_consumer_group_offsets = _blocking(AsyncAdmin.alter_consumer_group_offsets)
    delete_consumer_group_offsets = _blocking(AsyncAdmin.delete_consumer_group_offsets)
    list_offsets = _blocking(AsyncAdmin.list_offsets)
    delete_records = _blocking(AsyncAdmin.delete_records)
    elect_leaders = _blocking(AsyncAdmin.elect_leaders)
    alter_partition_reassignments = _blocking(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = _blocking(AsyncAdmin.list_partition_reassignments)
    describe_cluster = _blocking(AsyncAdmin.describe_cluster)
    describe_api_versions = _blocking(AsyncAdmin.describe_api_versions)
    describe_features = _blocking(AsyncAdmin.describe_features)
    update_features = _blocking(AsyncAdmin.update_features)
    describe_log_dirs = _blocking(AsyncAdmin.describe_log_dirs)
    describe_replica_log_dirs = _blocking(AsyncAdmin.describe_replica_log_dirs)
    alter_replica_log_dirs = _blocking(AsyncAdmin.alter_replica_log_dirs)
    list_transactions = _blocking(AsyncAdmin.list_transactions)
    describe_transactions = _blocking(AsyncAdmin.describe_transactions)
    describe_producers = _blocking(AsyncAdmin.describe_producers)
    abort_transaction = _blocking(AsyncAdmin.abort_transaction)
    describe_user_scram_credentials = _blocking(AsyncAdmin.describe_user_scram_credentials)
    alter_user_scram_credentials = _blocking(AsyncAdmin.alter_user_scram_credentials)
    describe_client_quotas = _blocking(AsyncAdmin.describe_client_quotas)
    alter_client_quotas = _blocking(AsyncAdmin.alter_client_quotas)
    describe_acls = _blocking(AsyncAdmin.describe_acls)
    create_acls = _blocking(AsyncAdmin.create_acls)
    delete_acls = _blocking(AsyncAdmin.delete_acls)
    create_delegation_token = _blocking(AsyncAdmin.create_delegation_token)
    renew_delegation_token = _blocking(AsyncAdmin.renew_delegation_token)
    expire_delegation_token = _blocking(AsyncAdmin.expire_delegation_token)
    describe_delegation_tokens = _blocking(AsyncAdmin.describe_delegation_tokens)
    fence_producers = _blocking(AsyncAdmin.fence_producers)
    force_terminate_transaction = _blocking(AsyncAdmin.force_terminate_transaction)


def _abandon(admin: AsyncAdmin, thread: LoopThread) -> None:
    """Close the connections and end the thread of a client that was dropped without `close`."""
    thread.close_soon(admin.close(0.0))
