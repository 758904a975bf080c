"""Settings of the ZooKeeper server, under the names of ZooKeeper's ``zoo.cfg``.

Defaults are ZooKeeper's unless a setting's documentation names another. Settings that only ensembles read are
accepted, so that a file written for ZooKeeper works. Settings that would make this server a member of an
ensemble are refused, and so are values that require a protection which this server lacks. The settings of TLS
and authentication are in `security_config`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from kalda.common.config_def import (
    ConfigDef,
    ConfigError,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    MissingFeature,
    at_least,
    between,
    refuse_missing_features,
)
from kalda.security.tls.contexts import ReadFile, read_file
from kalda.security.tls.settings import TlsSettings
from kalda.zookeeper.server.authentication import Authentication
from kalda.zookeeper.server.security_config import (
    PROVIDER_PREFIX,
    SECURITY_KEYS,
    SECURITY_WITHOUT_EFFECT,
    provider_scheme,
    read_security,
)

FOUR_LETTER_WORDS: Final = (
    "conf",
    "cons",
    "crst",
    "dirs",
    "dump",
    "envi",
    "isro",
    "mntr",
    "ruok",
    "srst",
    "srvr",
    "stat",
    "wchc",
    "wchp",
    "wchs",
)
"""The commands that are implemented; the whitelist enables them."""

_QUOTAS: Final = MissingFeature("quotas", "clients are not limited")
_AUDIT: Final = MissingFeature("an audit log", "nothing is recorded")

_HIGH, _LOW = Importance.HIGH, Importance.LOW


def _key(
    name: str,
    kind: ConfigType,
    default: ConfigValue,
    documentation: str,
    *,
    low: int | None = None,
    high: int | None = None,
    importance: Importance = Importance.MEDIUM,
    requires: MissingFeature | None = None,
) -> ConfigKey:
    validator = None
    if low is not None:
        validator = at_least(low) if high is None else between(low, high)
    return ConfigKey(
        name=name,
        type=kind,
        default=default,
        documentation=documentation,
        validator=validator,
        importance=importance,
        requires=requires,
    )


ZOOKEEPER_CONFIG: Final = ConfigDef(
    (
        _key("dataDir", ConfigType.STRING, None, "Where snapshots and the log are.", importance=_HIGH),
        _key(
            "clientPort", ConfigType.INT, 2181, "The port for clients.", low=0, high=65535, importance=_HIGH
        ),
        _key("clientPortAddress", ConfigType.STRING, None, "The address to listen on."),
        _key(
            "clientPortListenBacklog",
            ConfigType.INT,
            -1,
            "Connections that the system queues before they are accepted; -1 is 50.",
            low=-1,
        ),
        _key("tickTime", ConfigType.INT, 3000, "ZooKeeper's unit of time, in milliseconds.", low=1),
        _key(
            "minSessionTimeout",
            ConfigType.INT,
            1000,
            "The shortest session time-out that is granted, in milliseconds; -1 is two ticks. ZooKeeper's "
            "default is two ticks, too long for brokers that are to fail over within two seconds.",
            low=-1,
        ),
        _key(
            "maxSessionTimeout",
            ConfigType.INT,
            -1,
            "The longest session time-out that is granted, in milliseconds; -1 is twenty ticks.",
            low=-1,
        ),
        _key("maxClientCnxns", ConfigType.INT, 60, "Connections per host; 0 is no limit.", low=0),
        _key("maxCnxns", ConfigType.INT, 0, "Connections altogether; 0 is no limit.", low=0),
        _key(
            "jute.maxbuffer",
            ConfigType.INT,
            1024 * 1024 - 1,
            "Bytes of the largest request.",
            low=1024,
            high=64 * 1024 * 1024,
        ),
        _key(
            "globalOutstandingLimit",
            ConfigType.INT,
            1000,
            "Outstanding requests above which a connection with outstanding requests is not read from.",
            low=1,
        ),
        _key(
            "snapCount",
            ConfigType.INT,
            10_000,
            "Changes between snapshots, at least. ZooKeeper's default is 100000; a start replays them.",
            low=2,
        ),
        _key("autopurge.snapRetainCount", ConfigType.INT, 3, "Snapshots that are kept.", low=3),
        _key(
            "autopurge.purgeInterval",
            ConfigType.INT,
            0,
            "Hours between purges of old snapshots and logs; accepted, because files are purged with every "
            "snapshot.",
            low=0,
        ),
        _key(
            "4lw.commands.whitelist",
            ConfigType.LIST,
            ("ruok", "stat", "mntr", "srvr", "isro"),
            "Four-letter commands that are enabled; * is all. ZooKeeper's default is srvr alone.",
        ),
        _key(
            "znode.container.checkIntervalMs",
            ConfigType.INT,
            60_000,
            "Milliseconds between checks for containers and znodes with a time to live that are due.",
            low=1,
        ),
        _key(
            "znode.container.maxPerMinute",
            ConfigType.INT,
            10_000,
            "Containers and znodes with a time to live that are deleted in a minute, at most.",
            low=1,
        ),
        _key(
            "DigestAuthenticationProvider.superDigest",
            ConfigType.PASSWORD,
            None,
            "super:HASH of the identity that may do everything, as in a digest access list.",
        ),
        _key("forceSync", ConfigType.STRING, "yes", "no: changes are acknowledged before they are durable."),
        _key("initLimit", ConfigType.INT, 10, "For ensembles; accepted.", low=0, importance=_LOW),
        _key("syncLimit", ConfigType.INT, 5, "For ensembles; accepted.", low=0, importance=_LOW),
        _key(
            "admin.enableServer",
            ConfigType.BOOLEAN,
            False,
            "There is no HTTP server; accepted.",
            importance=_LOW,
        ),
        _key("admin.serverPort", ConfigType.INT, 8080, "There is no HTTP server; accepted.", importance=_LOW),
        _key(
            "enforceQuota",
            ConfigType.BOOLEAN,
            False,
            "Whether quotas of znodes are enforced.",
            requires=_QUOTAS,
        ),
        _key("audit.enable", ConfigType.BOOLEAN, False, "Whether changes are audited.", requires=_AUDIT),
        *SECURITY_KEYS,
    )
)

_OF_ENSEMBLES: Final = ("server.", "group.", "weight.", "ssl.quorum.", "quorum.auth.", "sslQuorum")

WITHOUT_EFFECT: Final = frozenset(
    {
        "admin.enableServer",
        "admin.serverPort",
        "autopurge.purgeInterval",
        "initLimit",
        "syncLimit",
        *SECURITY_WITHOUT_EFFECT,
    }
)
"""The settings that are accepted without effect."""


@dataclass(frozen=True, slots=True)
class ZooKeeperConfig:
    """The settings in force; time-outs are resolved, so none is -1."""

    data_dir: str | None = None
    client_port: int | None = 2181
    """None if clients connect to the secure port only."""
    client_port_address: str | None = None
    listen_backlog: int = 50
    tick_ms: int = 3000
    session_timeout_ms_min: int = 1000
    session_timeout_ms_max: int = 60_000
    connections_per_host_max: int = 60
    connections_max: int = 0
    frame_bytes_max: int = 1024 * 1024 - 1
    outstanding_max: int = 1000
    snapshot_changes: int = 10_000
    snapshots_retained: int = 3
    container_check_ms: int = 60_000
    container_deletes_per_minute_max: int = 10_000
    authentication: Authentication = field(default_factory=Authentication)
    secure_client_port: int | None = None
    secure_client_port_address: str | None = None
    port_unification: bool = False
    tls: TlsSettings | None = None
    """For the secure port and for a unified one; None if there is neither."""
    sync: bool = True
    four_letter_words: frozenset[str] = field(
        default_factory=lambda: frozenset(("ruok", "stat", "mntr", "srvr", "isro"))
    )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], read: ReadFile = read_file) -> Self:
        """Parse the settings of a ``zoo.cfg``; `read` reads the files that they name.

        Raises:
            ConfigError: a name is unknown, a value is not allowed, or a file cannot be used.
        """
        for name in properties:
            if name.startswith(_OF_ENSEMBLES) or name == "dynamicConfigFile":
                raise ConfigError(
                    name,
                    f"`{name}` is for ensembles: this server is standalone; run ZooKeeper for an ensemble",
                )
        providers = {name for name in properties if name.startswith(PROVIDER_PREFIX)}
        schemes = frozenset(provider_scheme(name, properties[name]) for name in providers)
        given = ZOOKEEPER_CONFIG.parse(
            {name: value for name, value in properties.items() if name not in providers}
        )
        refuse_missing_features((ZOOKEEPER_CONFIG.keys[name], value) for name, value in given.items())
        values = {**ZOOKEEPER_CONFIG.defaults, **given}

        def number(name: str) -> int:
            value = values[name]
            assert isinstance(value, int), f"{name} is declared as an int"
            return value

        def text(name: str) -> str | None:
            value = values[name]
            assert value is None or isinstance(value, str), f"{name} is declared as a string"
            return value

        tick_ms = number("tickTime")
        timeout_min, timeout_max = number("minSessionTimeout"), number("maxSessionTimeout")
        timeout_min = 2 * tick_ms if timeout_min == -1 else timeout_min
        timeout_max = 20 * tick_ms if timeout_max == -1 else timeout_max
        if not 1 <= timeout_min <= timeout_max:
            raise ConfigError(
                "minSessionTimeout",
                f"`minSessionTimeout`={timeout_min} is not allowed: it takes 1 to "
                f"`maxSessionTimeout`={timeout_max}",
            )
        backlog = number("clientPortListenBacklog")
        security = read_security(values, schemes, read)
        is_secure = given.get("secureClientPort") is not None
        return cls(
            data_dir=text("dataDir"),
            client_port=None if is_secure and "clientPort" not in given else number("clientPort"),
            client_port_address=text("clientPortAddress"),
            listen_backlog=50 if backlog == -1 else backlog,
            tick_ms=tick_ms,
            session_timeout_ms_min=timeout_min,
            session_timeout_ms_max=timeout_max,
            connections_per_host_max=number("maxClientCnxns"),
            connections_max=number("maxCnxns"),
            frame_bytes_max=number("jute.maxbuffer"),
            outstanding_max=number("globalOutstandingLimit"),
            snapshot_changes=number("snapCount"),
            snapshots_retained=number("autopurge.snapRetainCount"),
            container_check_ms=number("znode.container.checkIntervalMs"),
            container_deletes_per_minute_max=number("znode.container.maxPerMinute"),
            authentication=security.authentication,
            secure_client_port=number("secureClientPort") if is_secure else None,
            secure_client_port_address=text("secureClientPortAddress"),
            port_unification=bool(values["client.portUnification"]),
            tls=security.tls,
            sync=_force_sync(text("forceSync")),
            four_letter_words=_whitelist(values["4lw.commands.whitelist"]),
        )


def _force_sync(text: str | None) -> bool:
    if text not in ("yes", "no"):
        raise ConfigError("forceSync", f"`forceSync`={text} is not allowed: it takes yes or no")
    return text == "yes"


def _whitelist(words: ConfigValue) -> frozenset[str]:
    assert isinstance(words, tuple), "4lw.commands.whitelist is declared as a list"
    if "*" in words:
        return frozenset(FOUR_LETTER_WORDS)
    # ZooKeeper ignores unknown commands too: a list for another version must not prevent the start.
    return frozenset(words) & frozenset(FOUR_LETTER_WORDS)
