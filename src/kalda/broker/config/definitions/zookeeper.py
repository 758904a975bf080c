"""The connection to the coordination service."""

from typing import Final

from kalda.broker.config.definitions.declare import COORDINATION_ACLS, COORDINATION_TLS, KRAFT, setting
from kalda.common.config_def import ConfigKey, ConfigType, Importance, at_least

ZOOKEEPER: Final[tuple[ConfigKey, ...]] = (
    setting("zookeeper.clientCnxnSocket", ConfigType.STRING, None, "The JVM's ZooKeeper socket class."),
    setting(
        "zookeeper.connect",
        ConfigType.STRING,
        None,
        "Hosts of the coordination service as `host:port[,host:port…][/chroot]`.",
        importance=Importance.HIGH,
    ),
    setting(
        "zookeeper.connection.timeout.ms",
        ConfigType.INT,
        None,
        "How long the first connection to coordination may take; the session timeout where not set.",
        importance=Importance.HIGH,
    ),
    setting(
        "zookeeper.max.in.flight.requests",
        ConfigType.INT,
        10,
        "Unanswered requests to coordination at which sending pauses.",
        at_least(1),
        importance=Importance.HIGH,
    ),
    setting(
        "zookeeper.metadata.migration.enable",
        ConfigType.BOOLEAN,
        False,
        "Whether the cluster is being migrated to KRaft.",
        importance=Importance.HIGH,
        requires=KRAFT,
    ),
    setting(
        "zookeeper.metadata.migration.min.batch.size",
        ConfigType.INT,
        200,
        "Smallest batch of records in a migration to KRaft.",
        at_least(1),
        internal=True,
    ),
    setting(
        "zookeeper.session.timeout.ms",
        ConfigType.INT,
        18000,
        "A broker that coordination did not hear for this long counts as dead.",
        importance=Importance.HIGH,
    ),
    setting(
        "zookeeper.set.acl",
        ConfigType.BOOLEAN,
        False,
        "Whether nodes are created with access lists.",
        importance=Importance.HIGH,
        requires=COORDINATION_ACLS,
    ),
    setting(
        "zookeeper.ssl.cipher.suites",
        ConfigType.LIST,
        None,
        "Cipher suites towards coordination.",
        importance=Importance.LOW,
        requires=COORDINATION_TLS,
    ),
    setting(
        "zookeeper.ssl.client.enable",
        ConfigType.BOOLEAN,
        False,
        "Whether coordination is reached over TLS.",
        requires=COORDINATION_TLS,
    ),
    setting(
        "zookeeper.ssl.crl.enable",
        ConfigType.BOOLEAN,
        False,
        "Whether revocation lists are checked towards coordination.",
        importance=Importance.LOW,
        requires=COORDINATION_TLS,
    ),
    setting(
        "zookeeper.ssl.enabled.protocols",
        ConfigType.LIST,
        None,
        "TLS versions towards coordination.",
        importance=Importance.LOW,
        requires=COORDINATION_TLS,
    ),
    setting(
        "zookeeper.ssl.endpoint.identification.algorithm",
        ConfigType.STRING,
        "HTTPS",
        "How coordination's host names are checked.",
        importance=Importance.LOW,
    ),
    setting(
        "zookeeper.ssl.keystore.location",
        ConfigType.STRING,
        None,
        "Key store towards coordination.",
        requires=COORDINATION_TLS,
    ),
    setting(
        "zookeeper.ssl.keystore.password",
        ConfigType.PASSWORD,
        None,
        "Password of the key store towards coordination.",
        requires=COORDINATION_TLS,
    ),
    setting(
        "zookeeper.ssl.keystore.type", ConfigType.STRING, None, "Form of the key store towards coordination."
    ),
    setting(
        "zookeeper.ssl.ocsp.enable",
        ConfigType.BOOLEAN,
        False,
        "Whether OCSP is asked towards coordination.",
        importance=Importance.LOW,
        requires=COORDINATION_TLS,
    ),
    setting(
        "zookeeper.ssl.protocol",
        ConfigType.STRING,
        "TLSv1.2",
        "TLS version towards coordination.",
        importance=Importance.LOW,
    ),
    setting(
        "zookeeper.ssl.truststore.location",
        ConfigType.STRING,
        None,
        "Trust store towards coordination.",
        requires=COORDINATION_TLS,
    ),
    setting(
        "zookeeper.ssl.truststore.password",
        ConfigType.PASSWORD,
        None,
        "Password of the trust store towards coordination.",
        requires=COORDINATION_TLS,
    ),
    setting(
        "zookeeper.ssl.truststore.type",
        ConfigType.STRING,
        None,
        "Form of the trust store towards coordination.",
    ),
)
