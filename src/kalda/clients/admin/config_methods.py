"""Holds the admin client's methods on settings; `config_calls` has their requests and responses."""

from collections.abc import Iterable, Mapping

from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.configs import AlterConfigOp, ConfigEntry, ConfigResource, ConfigResourceType
from kalda.clients.admin.outcomes import Outcomes


class ConfigMethods(AdminMethods):
    """Lists resources; describes and changes settings of topics, brokers, groups and client metrics."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource] | Mapping[ConfigResource, Iterable[str] | None],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
        """Describe the settings of resources.

        Args:
            resources: The resources; a mapping also names the settings to describe of each, None for all.
            include_synonyms: Whether to return where a value could come from besides (KIP-226).
            include_documentation: Whether to return the texts of Kafka's documentation (brokers 2.6 and
                newer, KIP-569).
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By resource, its settings by name in alphabetical order, or the error.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.config_calls import DescribeConfigs

        names = resources if isinstance(resources, Mapping) else dict.fromkeys(resources)
        operation = DescribeConfigs(names, include_synonyms, include_documentation)
        return await self._run(operation, names, timeout_ms, outcomes=outcomes)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[AlterConfigOp]],
        *,
        validate_only: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[ConfigResource, None]:
        """Change single settings and leave the others alone (KIP-339).

        A resource's changes are made together or not at all. Brokers before 2.3 can only replace all settings
        of a resource; the client then reads them, changes them and writes them back.

        Args:
            changes: By resource, what to set, delete, append or subtract.
            validate_only: Check only whether the changes are allowed.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By resource, None or the error: INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION and
            others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.config_calls import AlterConfigs

        operation = AlterConfigs(changes, validate_only)
        return await self._run(operation, operation.changes, timeout_ms, outcomes=outcomes)

    async def list_config_resources(
        self, types: Iterable[ConfigResourceType] = (), *, timeout_ms: int | None = None
    ) -> list[ConfigResource]:
        """List the resources that may have settings (brokers 4.1 and newer, KIP-1142).

        Args:
            types: Only resources of these types; all types that the broker supports unless given. Brokers
                from 3.7 on list those of the type CLIENT_METRICS.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Raises:
            ClientError: the broker lists no resources of these types, or did not answer in time.
        """
        from kalda.clients.admin.config_calls import ListConfigResources

        return await self._run_one(ListConfigResources(types), timeout_ms)

    async def list_client_metrics_resources(self, *, timeout_ms: int | None = None) -> list[str]:
        """List the names of subscriptions to the metrics of clients (brokers 3.7 and newer, KIP-714).

        Args:
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Raises:
            ClientError: the broker has no subscriptions, or did not answer in time.
        """
        found = await self.list_config_resources([ConfigResourceType.CLIENT_METRICS], timeout_ms=timeout_ms)
        return [each.name for each in found]
