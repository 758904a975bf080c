"""One broker with a listener for each security protocol, every mechanism, ACLs and an audit.

Each `Way` of logging in has a user of its own, who may use topics, groups and transactional ids that begin
with the user's name, and may administer the cluster. A client that gets in as somebody else is refused.
"""

import base64
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from kalda import Admin
from kalda.clients.admin.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.clients.admin.users import ScramCredentialUpsertion, ScramMechanism
from kalda.security.tls.authority import CertificateAuthority
from kalda.testing import KaldaProcess
from kalda.testing.ports import free_ports
from tests import full_audit
from tests.identity_provider import CLIENT_SECRET, Provider

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
HANDLERS = "org.apache.kafka.common.security.oauthbearer"

TOKEN = "token"
"""The login by a delegation token, which is SCRAM with a token's id for a name."""
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
USERS = {
    "SSL": "ANONYMOUS",
    "MTLS": "certified",
    "PLAIN": "plain",
    "SCRAM-SHA-256": "scram256",
    "SCRAM-SHA-512": "scram512",
    "OAUTHBEARER": "oauth",
    "GSSAPI": "alice",
    TOKEN: "delegator",
}
SASL_LISTENERS = ("SASL_PLAINTEXT", "SASL_SSL")
ADMIN = "admin"
AUDIT_SECONDS = 60.0


class Way(NamedTuple):
    """A listener and, if it has logins by SASL, the mechanism."""

    listener: str
    mechanism: str = ""

    @property
    def user(self) -> str:
        return USERS[self.mechanism or self.listener]

    @property
    def principal(self) -> str:
        return f"User:{self.user}"

    @property
    def protocol(self) -> str:
        """The security protocol."""
        return "SSL" if self.listener == "MTLS" else self.listener

    @property
    def has_tls(self) -> bool:
        return self.protocol != "SASL_PLAINTEXT"

    def __str__(self) -> str:
        return "-".join(filter(None, self))


def ways(*mechanisms: str) -> list[Way]:
    """Return each way in for a client that has these mechanisms."""
    by_sasl = [Way(listener, mechanism) for mechanism in mechanisms for listener in SASL_LISTENERS]
    return [Way("SSL"), Way("MTLS"), *by_sasl]


class Kerberos(NamedTuple):
    """The realm, the directory of the key tables, and the configuration of the library."""

    realm: str
    directory: Path
    config: Path

    def key_table(self, name: str) -> Path:
        """Return the key table of a principal, by the name without the realm."""
        return self.directory / f"{name.replace('/', '-')}.keytab"


class SecuredBroker:
    """A context manager; `process` runs inside it."""

    def __init__(
        self,
        directory: Path,
        provider: Provider,
        *,
        host: str = "127.0.0.1",
        kerberos: Kerberos | None = None,
    ) -> None:
        self.provider = provider
        self.directory = directory
        self._host = host
        self._kerberos = kerberos
        names = ("SSL", "MTLS", *SASL_LISTENERS)
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        now, valid = datetime.now(UTC), timedelta(days=1)
        authority = CertificateAuthority.make("tests", now, valid)
        self.ca, self._own, self.certificate = (
            directory / f"{name}.pem" for name in ("ca", "broker", USERS["MTLS"])
        )
        self.ca.write_bytes(authority.own.certificate)
        self._own.write_bytes(authority.issue("broker", now, valid, ["127.0.0.1", "localhost"]).key_store)
        self.certificate.write_bytes(authority.issue(USERS["MTLS"], now, valid).key_store)
        command = [sys.executable, str(full_audit.__file__)]
        self.process = KaldaProcess(directory / "data", settings=self._settings(), command=command)
        self._token = ("", "")

    def __enter__(self) -> "SecuredBroker":
        self.process.start()
        self._add_users()
        return self

    def __exit__(self, *error: Any) -> None:
        self.process.__exit__(*error)

    def address(self, way: Way) -> str:
        return f"{self._host}:{self._ports[way.listener]}"

    def password(self, way: Way) -> str:
        """The password of a way's user: the HMAC in base64 if it logs in by a delegation token."""
        return self._token[1] if way.mechanism == TOKEN else f"{way.user}-secret"

    def name(self, way: Way) -> str:
        """The name that a way's user logs in with."""
        return self._token[0] if way.mechanism == TOKEN else way.user

    def mechanism(self, way: Way) -> str:
        """The way's mechanism as a client names it."""
        return SCRAM[0] if way.mechanism == TOKEN else way.mechanism

    def kerberos_login(self, way: Way) -> dict[str, str]:
        """Return what a client in Go needs of Kerberos."""
        assert self._kerberos is not None
        return {
            "key_table": str(self._kerberos.key_table(way.user)),
            "realm": self._kerberos.realm,
            "kerberos_config": str(self._kerberos.config),
        }

    def properties(self, way: Way) -> dict[str, str]:
        """Return what Java's clients take, and Kalda's."""
        found = {"bootstrap.servers": self.address(way), "security.protocol": way.protocol}
        if way.has_tls:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        if way.listener == "MTLS":
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.certificate)}
        if way.mechanism:
            found |= {"sasl.mechanism": self.mechanism(way), "sasl.jaas.config": self._module(way)}
        if way.mechanism == "OAUTHBEARER":
            found |= {
                "sasl.login.callback.handler.class": f"{HANDLERS}.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": f"{self.provider.url}/token",
            }
        if way.mechanism == "GSSAPI":
            found |= {"sasl.kerberos.service.name": "kafka"}
        return found

    def write_properties(self, way: Way, more: Mapping[str, str] | None = None) -> Path:
        """Write the properties to a file and return it."""
        path = self.directory / f"{way}.properties"
        lines = {**self.properties(way), **(more or {})}
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return path

    def admin(self) -> Admin:
        """Return the client of the user who may do everything."""
        return Admin.from_config(self._password_login(ADMIN))

    def audited(self, **fields: object) -> list[dict[str, Any]]:
        """Return the events of the audit that have these fields."""
        found = []
        for line in self.process.log().splitlines():
            _, brace, text = line.partition('{"event"')
            if brace:
                event, _ = json.JSONDecoder().raw_decode(brace + text)
                found += [event] if fields.items() <= event.items() else []
        return found

    def check_audit(self, way: Way, topic: str, request: str = "CreateTopics") -> None:
        """Check that the broker knew the client by its principal, at the login and when it made a topic."""
        deadline = time.monotonic() + AUDIT_SECONDS
        while not (changes := self.audited(event="change", request=request, resources=[topic])):
            assert time.monotonic() < deadline, f"no change of {topic} in the audit"
            time.sleep(0.01)
        assert {way.principal} == {each["principal"] for each in changes}, changes
        if way.listener != "SSL":
            logins = self.audited(event="login", outcome="success", listener=way.listener)
            assert way.principal in {each["principal"] for each in logins}

    def _password_login(self, user: str) -> dict[str, str]:
        way = Way("SASL_PLAINTEXT", "PLAIN")
        module = f'{PLAIN_MODULE} required username="{user}" password="{user}-secret";'
        return {**self.properties(way), "sasl.jaas.config": module}

    def _module(self, way: Way) -> str:
        if way.mechanism == "OAUTHBEARER":
            return f'{OAUTH_MODULE} required clientId="{way.user}" clientSecret="{CLIENT_SECRET}";'
        if way.mechanism == "GSSAPI":
            assert self._kerberos is not None
            table = self._kerberos.key_table(way.user)
            return (
                f'{KERBEROS_MODULE} required useKeyTab=true storeKey=true keyTab="{table}" '
                f'principal="{way.user}@{self._kerberos.realm}";'
            )
        module = PLAIN_MODULE if way.mechanism == "PLAIN" else SCRAM_MODULE
        by_token = ' tokenauth="true"' if way.mechanism == TOKEN else ""
        return f'{module} required username="{self.name(way)}" password="{self.password(way)}"{by_token};'

    def _settings(self) -> dict[str, str]:
        users = (ADMIN, USERS["PLAIN"], USERS[TOKEN])
        known = " ".join(f'user_{user}="{user}-secret"' for user in users)
        plain = f'{PLAIN_MODULE} required username="{ADMIN}" password="{ADMIN}-secret" {known};'
        protocols = {name: "SSL" if name == "MTLS" else name for name in self._ports}
        settings = {
            "listeners": ",".join(f"{name}://{self._host}:{port}" for name, port in self._ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in protocols.items()),
            "inter.broker.listener.name": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._own),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
            "listener.name.mtls.ssl.client.auth": "required",
            "sasl.oauthbearer.jwks.endpoint.url": f"{self.provider.url}/keys",
            "sasl.oauthbearer.expected.audience": "kafka",
            "delegation.token.secret.key": "of-the-cluster",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{ADMIN}",
            "group.initial.rebalance.delay.ms": "0",
        }
        handler = f"{HANDLERS}.OAuthBearerValidatorCallbackHandler"
        for name in SASL_LISTENERS:
            prefix = f"listener.name.{name.lower()}"
            settings |= {
                f"{prefix}.plain.sasl.jaas.config": plain,
                f"{prefix}.oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} required;",
                f"{prefix}.oauthbearer.sasl.server.callback.handler.class": handler,
            }
            if self._kerberos is not None:
                service = f"kafka/{self._host}"
                settings[f"{prefix}.gssapi.sasl.jaas.config"] = (
                    f"{KERBEROS_MODULE} required useKeyTab=true storeKey=true "
                    f'keyTab="{self._kerberos.key_table(service)}" '
                    f'principal="{service}@{self._kerberos.realm}";'
                )
        if self._kerberos is not None:
            settings["sasl.enabled.mechanisms"] += ",GSSAPI"
            settings["sasl.kerberos.service.name"] = "kafka"
        return settings

    def _add_users(self) -> None:
        with self.admin() as admin:
            admin.create_acls(
                [
                    AclBinding(pattern, AccessControlEntry(f"User:{user}", "*", *_ALLOW_ALL))
                    for user in USERS.values()
                    for pattern in _resources(user)
                ]
            )
            admin.alter_user_scram_credentials(
                ScramCredentialUpsertion(USERS[each.value], each, f"{USERS[each.value]}-secret")
                for each in ScramMechanism
            )
        with Admin.from_config(self._password_login(USERS[TOKEN])) as owner:
            token = owner.create_delegation_token()
        self._token = (token.token_id, base64.b64encode(token.hmac).decode())


_ALLOW_ALL = (AclOperation.ALL, PermissionType.ALLOW)


def _resources(user: str) -> list[ResourcePattern]:
    prefixed = [
        ResourcePattern(kind, f"{user}.", PatternType.PREFIXED)
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    ]
    return [*prefixed, ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")]


@contextmanager
def secured_broker(directory: Path, provider: Provider) -> Iterator[SecuredBroker]:
    with SecuredBroker(directory, provider) as broker:
        yield broker
