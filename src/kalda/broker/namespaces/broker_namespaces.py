"""Opens and closes namespaces on a running broker: `BrokerNamespaces`."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kalda.broker.namespaces.namespace_filter import BrokerNames, NamespaceFilter
from kalda.broker.namespaces.namespace_logins import NamespaceLogins, NamespaceTls, stored_principal
from kalda.broker.namespaces.removal import remove_coordinated, remove_shared
from kalda.broker.requests.services import BrokerServices
from kalda.cluster.schema import ListenerEndpoint
from kalda.net.frame_filters import FrameFilter
from kalda.net.listener_security import ListenerSecurity
from kalda.net.server import Server
from kalda.protocol.namespaces.namespace import Namespace, listener_of
from kalda.runtime.network import Network
from kalda.security.principal import ANONYMOUS
from kalda.settings import ListenerConfig


class BrokerNamespaces:
    """The namespaces of one broker. A namespace has a listener here, beside the one that it takes after."""

    def __init__(self, services: BrokerServices, server: Server, network: Network) -> None:
        self._services: Final = services
        self._server: Final = server
        self._network: Final = network
        self._names: Final = BrokerNames(services.metadata_cache, services.access.authorizer)
        self._open: Final[dict[str, Namespace]] = {}

    @property
    def names(self) -> Collection[str]:
        """The names of the open namespaces."""
        return self._open.keys()

    async def open(self, name: str, port: int = 0, *, outer: Sequence[FrameFilter] = ()) -> ListenerEndpoint:
        """Open the listener of a namespace and return its endpoint; the system chooses a port of 0.

        Its clients get no broker's address before `announce`. `outer` are filters that see a client's
        requests before the names are translated.

        Raises:
            ValueError: the name is wrong, or open already.
            OSError: the port cannot be bound.
        """
        space = Namespace(name)
        if name in self._open:
            raise ValueError(f"namespace {name!r} is open already")
        base = self._base()
        access = self._services.access
        self._open[name] = space
        try:
            bound = await self._server.listen(
                listener_of(base.name, space),
                base.host,
                port,
                security=self._security(space, base),
                filters=[*outer, NamespaceFilter(space, self._names)],
            )
        except OSError:
            del self._open[name]
            raise
        access.throttle.add_namespace(space.prefix)
        if access.authorizer is not None:
            access.authorizer.add_namespace(space.prefix)
        return ListenerEndpoint(
            listener_of(base.name, space),
            base.host or self._network.host_name(),
            bound,
            base.security_protocol,
        )

    def announce(self, name: str, endpoints: Mapping[int, ListenerEndpoint]) -> None:
        """Return these addresses to the namespace's clients, those of the cluster's brokers by id."""
        self._services.metadata_cache.add_listener(self._listener(name), endpoints)

    def close(self, name: str) -> None:
        """Close the listener of a namespace and its connections; its topics and groups stay.

        Closing twice is harmless.
        """
        if name not in self._open:
            return
        listener = self._listener(name)
        space = self._open.pop(name)
        access = self._services.access
        self._server.close_listener(listener)
        self._services.metadata_cache.remove_listener(listener)
        access.throttle.remove_namespace(space.prefix)
        if access.authorizer is not None:
            access.authorizer.remove_namespace(space.prefix)

    async def remove_coordinated(self, names: Collection[str]) -> None:
        """Remove what closed namespaces have on this broker; see `removal`."""
        await remove_coordinated(self._services, [Namespace(name) for name in names])

    async def remove_shared(self, names: Collection[str]) -> None:
        """Remove what closed namespaces have in the cluster, if this broker is the controller; see `removal`.

        Raises:
            ZooKeeperError: ZooKeeper did not answer.
        """
        await remove_shared(self._services, [Namespace(name) for name in names])

    def _listener(self, name: str) -> str:
        return listener_of(self._base().name, self._open[name])

    def _base(self) -> ListenerConfig:
        config = self._services.config
        return next(each for each in config.listeners if each.name != config.control_plane_listener_name)

    def _security(self, space: Namespace, base: ListenerConfig) -> ListenerSecurity:
        access = self._services.access
        tls = access.tls.listener(base.name)
        logins = NamespaceLogins(
            space, base.name, access.logins, access.scram_credentials, access.delegation_tokens
        )
        return ListenerSecurity(
            tls=None if tls is None else NamespaceTls(space, tls),
            start_login=logins.start if base.uses_sasl else None,
            anonymous=stored_principal(space, ANONYMOUS),
        )
