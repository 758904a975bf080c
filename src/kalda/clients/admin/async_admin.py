"""Implements `AsyncAdmin`, the admin client for asyncio programs; `admin` has the synchronous one.

It opens and closes the connections; the methods are in one class for each subject.
"""

import asyncio
from typing import TYPE_CHECKING, Final, Self, Unpack, cast

from kalda.clients.admin.acls import AclMethods
from kalda.clients.admin.admin_config import AdminConfig, AdminOptions
from kalda.clients.admin.call_runner import AdminCallRunner
from kalda.clients.admin.clusters import ClusterMethods
from kalda.clients.admin.configs import ConfigMethods
from kalda.clients.admin.delegation_tokens import DelegationTokenMethods
from kalda.clients.admin.events import EventMethods
from kalda.clients.admin.faults import FaultMethods
from kalda.clients.admin.group_members import GroupMemberMethods
from kalda.clients.admin.group_offsets import GroupOffsetMethods
from kalda.clients.admin.groups import GroupMethods
from kalda.clients.admin.log_dirs import LogDirMethods
from kalda.clients.admin.partitions import PartitionMethods
from kalda.clients.admin.processes import ProcessMethods
from kalda.clients.admin.quotas import QuotaMethods
from kalda.clients.admin.share_groups import ShareGroupMethods
from kalda.clients.admin.topics import TopicMethods
from kalda.clients.admin.transactions import TransactionMethods
from kalda.clients.admin.users import UserMethods
from kalda.clients.config.properties_source import PropertiesSource, properties_of
from kalda.clients.config.settings_help import lists_settings
from kalda.clients.errors import IllegalStateError
from kalda.clients.facade import AsyncClient
from kalda.clients.loop_owner import LoopOwner
from kalda.clients.metadata import Metadata
from kalda.clients.metrics.client_info import add_client_info
from kalda.clients.metrics.network_metrics import NetworkMetrics
from kalda.clients.metrics.registry import ClientMetrics, MetricValues
from kalda.clients.metrics.sensor import SampleConfig
from kalda.clients.network_client import NetworkClient
from kalda.clients.reprs import client_repr
from kalda.common.public import public
from kalda.common.types import UUID

if TYPE_CHECKING:
    from kalda.clients.telemetry.telemetry_reporter import TelemetryReporter

_TELEMETRY_DELAY_S: Final = 5.0
"""How long a client works before it asks whether to push metrics: most programs are done earlier."""
_TELEMETRY_CLOSE_TIMEOUT_S: Final = 1.0


class AdminBase:
    """Base of `Admin` and `AsyncAdmin`."""

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: PropertiesSource, **options: Unpack[AdminOptions]) -> Self:
        """Create a client from Kafka's dotted names, or the path of a ``client.properties`` file.

        Settings in `options` win.

        Raises:
            ClientConfigError: as for the class.
        """
        return cls(**cast(AdminOptions, {**AdminConfig.options_of(properties_of(config)), **options}))


@public
@lists_settings(AdminConfig)
class AsyncAdmin(
    TopicMethods,
    ConfigMethods,
    GroupMethods,
    GroupMemberMethods,
    GroupOffsetMethods,
    ShareGroupMethods,
    PartitionMethods,
    ClusterMethods,
    FaultMethods,
    EventMethods,
    ProcessMethods,
    LogDirMethods,
    TransactionMethods,
    UserMethods,
    QuotaMethods,
    DelegationTokenMethods,
    AclMethods,
    AdminBase,
    AsyncClient,
):
    """Does what an administrator of a cluster does: topics, settings, groups, offsets, transactions, brokers.

    Most methods take many things at once and return the result of each of them. A request goes to the broker
    that can answer it and is repeated while its error is one that passes, until the call's time is up.

    A call raises the first error, a `ClientError`, if one of its things failed. What succeeded stays: the
    error's `succeeded` and `failed` say how each thing ended, and its notes name them. With
    ``outcomes=True`` a call raises only for a misuse and for a failure of the whole call, and the `Outcomes`
    that it returns hold a result or an error for each thing.

        async with AsyncAdmin(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topics([NewTopic("flights", partitions=4, replication_factor=1)])

    It works with Apache Kafka 2.1 to 4.x. One instance serves any number of tasks of one event loop.

    Args:
        options: The settings of `AdminConfig`, Kafka's names in snake case, e.g. ``request_timeout_ms=5000``.

    Raises:
        ClientConfigError: a setting is unknown (the message offers the nearest name) or has a bad value.
    """

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        config = AdminConfig.from_options(options)
        self._metrics: Final = ClientMetrics(
            {"client-id": config.client_id},
            SampleConfig(config.metrics_sample_window_ms / 1000, config.metrics_num_samples),
        )
        add_client_info(self._metrics)
        self._client: Final = NetworkClient(
            config, Metadata(), metrics=NetworkMetrics(self._metrics, "admin-client")
        )
        self._pushes_metrics: Final = config.enable_metrics_push
        self._telemetry: TelemetryReporter | None = None
        self._telemetry_timer: asyncio.TimerHandle | None = None
        self._runner: Final = AdminCallRunner(
            self._client,
            default_timeout_ms=config.default_api_timeout_ms,
            request_timeout_ms=config.request_timeout_ms,
            retries_max=config.retries,
        )
        self._is_started = False
        self._owner: Final = LoopOwner("AsyncAdmin")

    def __repr__(self) -> str:
        client = vars(self).get("_client")
        state = "closed" if client is None or client.is_closed else "open"
        return client_repr(self, None if client is None else client.config, state)

    async def __aenter__(self) -> Self:
        return self

    async def close(self, timeout_s: float = 5.0) -> None:
        """Close the connections; calls under way end with errors. A second call does nothing.

        Args:
            timeout_s: How long the call may take at most.
        """
        if self._owner.is_foreign_process:
            # The connections are those of the parent.
            return
        self._owner.check()
        if self._telemetry_timer is not None:
            self._telemetry_timer.cancel()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        try:
            if self._telemetry is not None:
                await self._telemetry.close(min(timeout_s, _TELEMETRY_CLOSE_TIMEOUT_S))
        finally:
            await self._client.close(max(deadline - loop.time(), 0.1))

    # Observation

    def metrics(self) -> MetricValues:
        """Return the present values of all metrics, by Kafka's groups and names.

        For example ``admin.metrics().value("admin-client-metrics", "request-total")``.
        """
        return self._metrics.values()

    async def client_instance_id(self, timeout_s: float) -> UUID:
        """Return the id by which the cluster's metrics of clients name this client (KIP-714).

        Raises:
            IllegalStateError: `enable.metrics.push` is false, or the client is closed.
            RequestTimedOutError: the cluster gave none in time; it may not collect metrics of clients.
        """
        if not self._pushes_metrics:
            raise IllegalStateError("client_instance_id needs `enable.metrics.push`=true")
        self._open_runner()
        return await self._start_telemetry().client_instance_id(timeout_s)

    def _start_telemetry(self) -> "TelemetryReporter":
        """Start to push metrics; a program that is done before that does not even load the code."""
        if self._telemetry is None:
            from kalda.clients.telemetry.telemetry_reporter import TelemetryReporter

            if self._client.is_closed:
                raise IllegalStateError("the client is closed")
            self._telemetry = TelemetryReporter(
                self._client, self._metrics, dict, self._client.runtime.random.uniform
            )
            self._telemetry.start()
        return self._telemetry

    def _open_runner(self) -> AdminCallRunner:
        self._owner.check()
        if not self._is_started and not self._client.is_closed:
            self._is_started = True
            self._client.start()
            if self._pushes_metrics:
                loop = asyncio.get_running_loop()
                self._telemetry_timer = loop.call_later(_TELEMETRY_DELAY_S, self._start_telemetry)
        return self._runner
