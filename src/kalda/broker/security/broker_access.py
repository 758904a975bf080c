"""Groups the parts that control access to a broker: certificates, logins, ACLs, quotas."""

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Self

from kalda.broker.config import ConfigStore
from kalda.broker.security.authorizer import Authorizer
from kalda.broker.security.broker_audit import BrokerAudit
from kalda.broker.security.broker_tls import BrokerTls
from kalda.broker.security.client_throttle import ClientThrottle
from kalda.broker.security.delegation_tokens import DelegationTokens
from kalda.broker.security.logins import Logins
from kalda.broker.security.scram_credentials import ScramCredentials
from kalda.broker.security.stored_quotas import StoredQuotas
from kalda.cluster.acl_store import AclStore
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.delegation_token_store import DelegationTokenStore
from kalda.net.listener_security import ListenerSecurity
from kalda.net.peer.dialer import Dialer, SecureDialer
from kalda.runtime.runtime import Runtime
from kalda.settings import BrokerConfig, ListenerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAccess:
    """The parts of one broker that its listeners and dialers ask."""

    tls: BrokerTls
    logins: Logins
    scram_credentials: ScramCredentials
    delegation_tokens: DelegationTokens
    authorizer: Authorizer | None
    """None if every client may do everything."""
    stored_quotas: StoredQuotas
    throttle: ClientThrottle
    audit: BrokerAudit

    @classmethod
    def build(
        cls,
        config: BrokerConfig,
        config_store: ConfigStore,
        cluster: ClusterStore,
        runtime: Runtime,
        cluster_id: str,
    ) -> Self:
        """Make the parts; the settings in `config_store` must be loaded.

        Raises:
            ConfigError: a store of certificates cannot be read, or a login lacks its settings.
        """
        tls = BrokerTls(config, runtime.background)
        config_store.on_broker_change(lambda _: tls.reload_soon())
        credentials = ScramCredentials(config_store, cluster)
        tokens = DelegationTokens(
            config, DelegationTokenStore(cluster.zookeeper, runtime.random), runtime.clock, runtime.random
        )
        authorizer = (
            Authorizer(config, AclStore(cluster.zookeeper, runtime.random))
            if config.authorizer_class_name
            else None
        )
        audit = BrokerAudit()
        if authorizer is not None:
            authorizer.on_denial = audit.denial
        return cls(
            audit=audit,
            tls=tls,
            logins=Logins(config, runtime, credentials, tokens, cluster_id),
            scram_credentials=credentials,
            delegation_tokens=tokens,
            stored_quotas=StoredQuotas(config_store, cluster),
            throttle=ClientThrottle(config, config_store, runtime),
            authorizer=authorizer,
        )

    async def start(self) -> None:
        """Load delegation tokens, keys of token issuers and ACLs, before the first client is served.

        Raises:
            ZooKeeperError: it cannot be read.
        """
        await self.delegation_tokens.start()
        await self.logins.load_keys()
        if self.authorizer is not None:
            await self.authorizer.start()

    def background(self) -> list[Coroutine[object, object, None]]:
        """Return the coroutines that refresh tokens and their keys, each until cancelled."""
        return self.logins.background()

    async def close(self) -> None:
        """Stop following changes."""
        await self.delegation_tokens.close()
        if self.authorizer is not None:
            await self.authorizer.close()

    async def open(self, listener: ListenerConfig) -> None:
        """Create the security of a listener that was added while the broker runs.

        Raises:
            ConfigError: a store of certificates cannot be read, or a mechanism lacks its settings.
        """
        if listener.uses_tls:
            await self.tls.open(listener.name)
        if listener.uses_sasl:
            await self.logins.open_later(listener.name)

    def close_listener(self, name: str) -> None:
        """Forget a listener that was removed."""
        self.tls.close(name)
        self.logins.close(name)

    def validate(self, trial: BrokerConfig) -> None:
        """Validate changed settings of access to the broker.

        Raises:
            ConfigError: a store of certificates cannot be used, or a mechanism lacks its settings.
        """
        self.tls.validate(trial)
        self.logins.validate(trial)

    def listener(self, name: str, *, uses_sasl: bool) -> ListenerSecurity:
        """Return the security (TLS, SASL) of a listener's connections."""
        return ListenerSecurity(
            tls=self.tls.listener(name), start_login=self.logins.start if uses_sasl else None
        )

    def dialer(self, dialer: Dialer, listener: str) -> Dialer:
        """Return a dialer that reaches a listener of other brokers as its security demands."""
        tls, login = self.tls.client(listener), self.logins.outgoing(listener)
        return dialer if tls is None and login is None else SecureDialer(dialer, tls, login)
