"""Checks of who may reach brokers, and of certificates. Pure functions."""

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final

from kalda.common.config_def import ConfigError
from kalda.inspection.doctor.findings import Finding, Severity, counted, some
from kalda.inspection.doctor.snapshot import ClusterSnapshot
from kalda.settings.listeners import SECURITY_PROTOCOLS, ListenerConfig, parse_listeners

_DAY_S: Final = 86_400
_EXPIRY_DAYS: Final = 30
"""How long before its end a certificate gets a warning: time to order another one."""

_AUTHORIZER: Final = "authorizer.class.name"


def check_open_listeners(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find listeners that other machines can reach on brokers without an authorizer."""
    anybody: list[str] = []
    everything: list[str] = []
    for broker_id in sorted(cluster.broker_settings):
        if cluster.broker_setting(broker_id, _AUTHORIZER):
            continue
        for each in _reachable(cluster, broker_id):
            place = f"{each} of broker {broker_id}"
            asks = each.uses_sasl or (each.uses_tls and _client_auth(cluster, broker_id, each) == "required")
            (everything if asks else anybody).append(place)
    if anybody:
        yield Finding(
            check="security.open-listener",
            severity=Severity.CRITICAL,
            what=f"{counted(anybody, 'listener serves', 'listeners serve')} everybody who reaches it.",
            evidence=f"{some(anybody)}; no {_AUTHORIZER}, no login",
            why="Anyone on the network can read, write and delete all topics and change the brokers.",
            mend="follow docs/how-to/secure-a-cluster.md, or listen on 127.0.0.1",
        )
    if everything:
        yield Finding(
            check="security.no-authorizer",
            severity=Severity.WARNING,
            what="Clients log in, and may then do everything: there is no authorizer.",
            evidence=f"{some(everything)}; no {_AUTHORIZER}",
            why="One leaked password of any application is enough to delete all topics.",
            mend="set authorizer.class.name=kafka.security.authorizer.AclAuthorizer; docs/how-to/acls.md",
        )


def check_open_acls(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find authorizers that allow access to resources without ACLs."""
    name = "allow.everyone.if.no.acl.found"
    found = [
        each
        for each, value in cluster.settings_with_value(name)
        if value == "true" and cluster.broker_setting(each, _AUTHORIZER)
    ]
    if found:
        yield Finding(
            check="security.allow-everyone",
            severity=Severity.WARNING,
            what="Topics and groups without an ACL are open to every client.",
            evidence=f"{name}=true on brokers {some(found)}",
            why="A topic whose creator forgets its ACLs is public.",
            mend=f"kalda acls add …  # for what has none, then set {name}=false",
        )


def check_passwords_in_clear(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find listeners on which clients send passwords without encryption."""
    found = [
        f"{each} of broker {broker_id}"
        for broker_id in sorted(cluster.broker_settings)
        for each in _reachable(cluster, broker_id)
        if each.security_protocol == "SASL_NATS"
        or (each.security_protocol == "SASL_PLAINTEXT" and "PLAIN" in _mechanisms(cluster, broker_id, each))
    ]
    if found:
        yield Finding(
            check="security.plain-without-tls",
            severity=Severity.CRITICAL,
            what=f"{counted(found, 'listener takes', 'listeners take')} passwords without encryption.",
            evidence=f"{some(found)}; SASL PLAIN, or a login of NATS, without TLS",
            why="Anyone on the way between client and broker reads the passwords.",
            mend="use SASL_SSL or SASL_NATS_SSL, or SCRAM instead of PLAIN; docs/how-to/sasl.md",
        )


def check_names_of_brokers(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find brokers that connect by TLS without verifying host names."""
    name = "ssl.endpoint.identification.algorithm"
    found = [
        broker_id
        for broker_id in sorted(cluster.broker_settings)
        if name in cluster.broker_settings[broker_id]
        and not cluster.broker_setting(broker_id, name)
        and any(each.uses_tls for each in _reachable(cluster, broker_id))
    ]
    if found:
        yield Finding(
            check="security.no-name-check",
            severity=Severity.WARNING,
            what="Brokers connect to others by TLS without comparing the name in the certificate.",
            evidence=f"{name} is empty on brokers {some(found)}",
            why="Any certificate of the same authority is taken for a broker's.",
            mend=f"set {name}=https, with certificates that have the brokers' names",
        )


def check_certificates(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find certificates of listeners that have ended or will soon."""
    ended, soon = [], []
    for each in cluster.certificates:
        left_days = (each.not_after_s - cluster.now_s) / _DAY_S
        if left_days < 0:
            ended.append(f"{each.place} ({each.subject}, ended {-left_days:.0f} days ago)")
        elif left_days < _EXPIRY_DAYS:
            soon.append(f"{each.place} ({each.subject}, ends in {left_days:.0f} days)")
    if ended:
        yield Finding(
            check="security.certificate-ended",
            severity=Severity.CRITICAL,
            what=f"{counted(ended, 'certificate has', 'certificates have')} ended.",
            evidence=some(ended),
            why="No client that verifies certificates can connect, and brokers cannot replicate.",
            mend="issue another certificate, replace the keystore, then: kalda configs alter --broker ID "
            "--add-config ssl.keystore.location=…",
        )
    if soon:
        yield Finding(
            check="security.certificate-ends-soon",
            severity=Severity.WARNING,
            what=f"{counted(soon, 'certificate ends', 'certificates end')} within {_EXPIRY_DAYS} days.",
            evidence=some(soon),
            why="From then on no client that verifies certificates can connect.",
            mend="issue another certificate, replace the keystore, then: kalda configs alter --broker ID "
            "--add-config ssl.keystore.location=…",
        )


def check_open_znodes(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find znodes that everybody may change; looked at only with ``--zookeeper``."""
    if cluster.open_znodes:
        yield Finding(
            check="security.open-znodes",
            severity=Severity.WARNING,
            what=f"Everybody who reaches ZooKeeper can change {len(cluster.open_znodes)} znodes.",
            evidence=some(cluster.open_znodes),
            why="Topics, settings, users and ACLs of the cluster can be changed there, past all brokers.",
            mend="kalda zk security-migration --zookeeper.acl secure  # with zookeeper.set.acl=true",
        )


def listeners_of(cluster: ClusterSnapshot, broker_id: int) -> tuple[ListenerConfig, ...]:
    """Return the listeners of a broker; none where it does not describe them."""
    text = cluster.broker_setting(broker_id, "listeners")
    if not text:
        return ()
    protocols = {each: each for each in SECURITY_PROTOCOLS}
    for entry in (cluster.broker_setting(broker_id, "listener.security.protocol.map") or "").split(","):
        name, _, protocol = entry.strip().partition(":")
        if protocol:
            protocols[name.upper()] = protocol.upper()
    try:
        return parse_listeners("listeners", text, protocols)
    except ConfigError:
        return ()


def _reachable(cluster: ClusterSnapshot, broker_id: int) -> Iterator[ListenerConfig]:
    """Yield the listeners that other machines can reach."""
    for each in listeners_of(cluster, broker_id):
        if not is_loopback(each.host):
            yield each


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address; an empty one stands for every interface."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _of_listener(cluster: ClusterSnapshot, broker_id: int, listener: ListenerConfig, name: str) -> str | None:
    own = cluster.broker_setting(broker_id, f"listener.name.{listener.name.lower()}.{name}")
    return own if own is not None else cluster.broker_setting(broker_id, name)


def _client_auth(cluster: ClusterSnapshot, broker_id: int, listener: ListenerConfig) -> str:
    return _of_listener(cluster, broker_id, listener, "ssl.client.auth") or "none"


def _mechanisms(cluster: ClusterSnapshot, broker_id: int, listener: ListenerConfig) -> set[str]:
    text = _of_listener(cluster, broker_id, listener, "sasl.enabled.mechanisms") or ""
    return {each.strip() for each in text.split(",")}
