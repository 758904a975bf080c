"""Opens and closes the listeners of a broker, at its start and when `listeners` changes while it runs.

A listener is known by its name. As in Kafka its address and its security protocol stay as long as it is open,
and so do its settings that cannot change; a listener with another name can have others. The inter-broker
listener and that of the control plane cannot be removed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kalda.broker.security.broker_access import BrokerAccess
from kalda.cluster.schema import ListenerEndpoint
from kalda.common.backoff import jittered
from kalda.common.config_def import ConfigError, UpdateMode
from kalda.net.server import Server
from kalda.runtime.runtime import Runtime
from kalda.settings import BrokerConfig, ListenerConfig
from kalda.settings.broker_config import LISTENER_PREFIX, find_key
from kalda.zookeeper.errors import ZooKeeperError

if TYPE_CHECKING:
    from kalda.broker.security.bearer_keys import BearerKeys

logger: Final = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0
"""The pause before the addresses are written to ZooKeeper again after a failure."""


class BrokerListeners:
    """The listeners that are open."""

    def __init__(
        self,
        config: BrokerConfig,
        server: Server,
        access: BrokerAccess,
        runtime: Runtime,
        on_secured: Callable[[], None],
    ) -> None:
        """`on_secured` is called when a listener with TLS or SASL was opened after the start."""
        self._config: Final = config
        self.server: Final = server
        self._access: Final = access
        self._runtime: Final = runtime
        self._on_secured: Final = on_secured
        self._open: Final[dict[str, ListenerConfig]] = {}
        self._ports: Final[dict[str, int]] = {}
        """The bound port of each listener that is open."""
        self._key_tasks: Final[dict[str, asyncio.Task[None]]] = {}
        """By listener, what keeps the keys of OAUTHBEARER up to date; of those opened after the start."""
        self._announced: tuple[object, ...] = ()
        """The settings that are part of the registration."""
        self._changed: Final = asyncio.Event()

    async def bind(self) -> None:
        """Open every listener, without accepting yet.

        Raises:
            OSError: an address cannot be bound; the message names it.
        """
        for listener in self._config.listeners:
            await self._listen(listener, accept=False)
        self._announced = self._to_announce()

    def advertised(self) -> tuple[ListenerEndpoint, ...]:
        """Return the advertised addresses of the listeners that are open."""
        return tuple(
            # A port of 0 is the bound one, and an empty host, every interface, the name of this host.
            ListenerEndpoint(
                each.name,
                each.host or self._runtime.network.host_name(),
                each.port or self._ports[each.name],
                each.security_protocol,
            )
            for each in self._config.advertised_listeners
            if each.name in self._ports
        )

    def validate(self, trial: BrokerConfig) -> None:
        """Check the listeners that changed settings would give this broker.

        Raises:
            ConfigError: the change is only possible at a start, or an address cannot be bound.
        """
        for setting, before, after in (
            (
                "inter.broker.listener.name",
                self._config.inter_broker_listener_name,
                trial.inter_broker_listener_name,
            ),
            (
                "control.plane.listener.name",
                self._config.control_plane_listener_name,
                trial.control_plane_listener_name,
            ),
        ):
            if before != after:
                raise ConfigError(
                    "listeners",
                    f"`listeners`: `{setting}` would be {after} instead of {before}, which cannot change "
                    "while the broker runs",
                )
        if trial.nats_listeners != self._config.nats_listeners:
            before, after = (
                ", ".join(map(str, each.nats_listeners)) or "none" for each in (self._config, trial)
            )
            raise ConfigError(
                "listeners",
                f"`listeners`: the listeners of NATS would be {after} instead of {before}; they only change "
                "at a start of the broker",
            )
        own_ports = set(self._ports.values())
        for listener in trial.listeners:
            if listener.name in self._open:
                self._require_unchanged(trial, listener)
            elif listener.port and listener.port not in own_ports:
                try:
                    self._runtime.network.probe(listener.host, listener.port)
                except OSError as error:
                    raise ConfigError(
                        "listeners", f"`listeners`: {listener} cannot be used: {error.strerror or error}"
                    ) from None

    def wake(self) -> None:
        """Have `run` compare the listeners with the settings, which have changed."""
        self._changed.set()

    async def run(self, announce: Callable[[], Awaitable[None]]) -> None:
        """Open and close listeners as the settings change, until cancelled.

        `announce` writes the registration to ZooKeeper; it has the advertised addresses, and whether all log
        directories are cordoned.
        """
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await self._reconcile(tasks)
                await self._announce(announce)

    async def _reconcile(self, tasks: asyncio.TaskGroup) -> None:
        wanted = {listener.name: listener for listener in self._config.listeners}
        for name in self._open.keys() - wanted.keys():
            self._close(name)
        for name, listener in wanted.items():
            current = self._open.get(name)
            try:
                if current is None:
                    await self._open_now(listener, tasks)
                    continue
                if listener.uses_sasl:
                    # Mechanisms that were enabled meanwhile need their keys.
                    await self._keep_keys(name, tasks)
            except (ConfigError, OSError) as error:
                logger.error("listener %s cannot be served as its settings say: %s", listener, error)
            if current is not None and not self._is_same(listener):
                logger.error("listener %s stays as it is until the next start, not %s", current, listener)

    def _is_same(self, listener: ListenerConfig) -> bool:
        """Whether a listener is open with this address and security protocol."""
        current = self._open[listener.name]
        # A port of 0 may be written as the port that the system chose.
        return listener == replace(
            current, port=listener.port if listener.port == self._ports[listener.name] else current.port
        )

    def _require_unchanged(self, trial: BrokerConfig, listener: ListenerConfig) -> None:
        """Check that settings which an open listener cannot change are unchanged.

        Raises:
            ConfigError: it would change.
        """
        current = self._open[listener.name]
        if not self._is_same(listener):
            raise ConfigError(
                "listeners",
                f"`listeners`: {listener} with {listener.security_protocol} is open as {current} with "
                f"{current.security_protocol}; an address and a security protocol cannot be updated for an "
                "existing listener. Add a listener with another name, or restart the broker",
            )
        before, after = _fixed(self._config, listener.name), _fixed(trial, listener.name)
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                raise ConfigError(
                    name,
                    f"`{name}` cannot be updated for the existing listener {listener.name}; restart the "
                    "broker, or create a new listener",
                )

    async def _open_now(self, listener: ListenerConfig, tasks: asyncio.TaskGroup) -> None:
        await self._access.open(listener)
        if listener.uses_sasl:
            await self._keep_keys(listener.name, tasks)
        await self._listen(listener, accept=True)
        if listener.uses_tls or listener.uses_sasl:
            self._on_secured()
        logger.info("listener %s is open", listener)

    async def _keep_keys(self, name: str, tasks: asyncio.TaskGroup) -> None:
        keys: BearerKeys | None = self._access.logins.new_keys(name)
        if keys is not None:
            await keys.load()
            self._key_tasks[name] = tasks.create_task(keys.run(), name=f"keys of {name}")

    def _close(self, name: str) -> None:
        listener = self._open.pop(name)
        del self._ports[name]
        self.server.close_listener(name)
        task = self._key_tasks.pop(name, None)
        if task is not None:
            task.cancel()
        self._access.close_listener(name)
        logger.info("listener %s is closed", listener)

    async def _listen(self, listener: ListenerConfig, *, accept: bool) -> None:
        security = self._access.listener(listener.name, uses_sasl=listener.uses_sasl)
        self._ports[listener.name] = await self.server.listen(
            listener.name, listener.host, listener.port, accept=accept, security=security
        )
        self._open[listener.name] = listener

    async def _announce(self, announce: Callable[[], Awaitable[None]]) -> None:
        while self._announced != (wanted := self._to_announce()):
            try:
                await announce()
            except ZooKeeperError as error:
                logger.warning("the registration of this broker is not up to date yet: %s", error)
                await asyncio.sleep(jittered(_RETRY_SECONDS, self._runtime.random))
            else:
                self._announced = wanted

    def _to_announce(self) -> tuple[object, ...]:
        return self.advertised(), self._config.cordoned_log_dirs


def _fixed(config: BrokerConfig, listener: str) -> Mapping[str, str]:
    """Return the settings of a listener that can only change at a start."""
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    written = {**config.static, **config.dynamic_default, **config.dynamic_broker}
    return {
        name: text
        for name, text in written.items()
        if name.startswith(prefix) and find_key(name).update_mode is UpdateMode.READ_ONLY
    }
