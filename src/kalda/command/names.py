"""Option types whose values are names of topics and groups, so that a shell can complete them.

The values are not checked: a topic may not exist yet. Completion asks the cluster that the line so far names,
for at most a second, and is silent if that fails: a shell has no place for an error.
"""

from abc import abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin

_COMPLETION_MS: Final = "1000"
"""Longer than a healthy cluster takes, and short enough for a keystroke."""


class _ClusterName(click.ParamType):  # type: ignore[type-arg]  # generic in newer clicks only
    """A name that the cluster can list."""

    name = "name"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name as it is."""
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin with `incomplete`."""
        from kalda.command.command import default_address, given_properties
        from kalda.command.errors import ToolError
        from kalda.common.config_def import ConfigError
        from kalda.net.client.client_errors import ClientError
        from kalda.runtime.system.event_loop import run_on_new_loop

        given = ctx.params
        with suppress(ToolError, ClientError, ConfigError, OSError):
            properties = given_properties(
                given.get("bootstrap_server"),
                given.get("command_config"),
                given.get("command_property") or (),
            )
            asked = {**default_address(), **properties, "default.api.timeout.ms": _COMPLETION_MS}
            names = run_on_new_loop(self._ask(asked))
            return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]
        return []

    async def _ask(self, properties: dict[str, str]) -> Iterable[str]:
        from kalda.clients.admin.admin_config import AdminConfig
        from kalda.clients.admin.async_admin import AsyncAdmin
        from kalda.clients.shared_properties import settings_for

        async with AsyncAdmin.from_config(settings_for(AdminConfig, properties)) as admin:
            return await self.names(admin)

    @abstractmethod
    async def names(self, admin: "AsyncAdmin") -> Iterable[str]:
        """Return the names that the cluster has."""


class TopicName(_ClusterName):
    """The name of a topic."""

    name = "topic"

    async def names(self, admin: "AsyncAdmin") -> Iterable[str]:
        """Return the names of topics, without those in which brokers keep state."""
        return await admin.list_topics()


class GroupName(_ClusterName):
    """The id of a group."""

    name = "group"

    async def names(self, admin: "AsyncAdmin") -> Iterable[str]:
        """Return the ids of groups."""
        return [each.group_id for each in (await admin.list_groups()).results]
