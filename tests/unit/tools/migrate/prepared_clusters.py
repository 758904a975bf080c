"""Clusters for `kalda migrate check`, each with obstacles that a test planted and nothing else to find.

A cluster is files (settings and log directories, written below a directory of the test) and what its brokers
and ZooKeeper describe, as values.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kalda.tools.migrate.cluster_checks import (
    BrokerFacts,
    ClusterFacts,
    TopicFacts,
    ZooKeeperFacts,
)
from kalda.tools.migrate.verdicts import Level

FITS, LOOK, STOPS = Level.FITS, Level.LOOK, Level.STOPS
CLUSTER_ID = "6Jb2w9QFRGqkJm5b0rdGvA"


def batch_head(magic: int, codec: int = 0) -> bytes:
    """Return the beginning of a segment in a message format."""
    if magic == 2:
        return struct.pack(">qiibIh", 0, 100, 0, 2, 0, codec) + bytes(40)
    return struct.pack(">qiIbb", 0, 100, 0, magic, codec) + bytes(40)


@dataclass
class Prepared:
    """A cluster of three brokers; the files are those of broker 1."""

    directory: Path
    settings: dict[str, str] = field(default_factory=dict)
    segments: dict[str, bytes] = field(
        default_factory=lambda: {
            "orders-0/00000000000000000000.log": batch_head(2),
            "orders-1/00000000000000000000.log": batch_head(2, codec=4),
            "__consumer_offsets-7/00000000000000000000.log": b"",
        }
    )
    meta: str | None = f"version=0\ncluster.id={CLUSTER_ID}\nbroker.id=1\n"
    cluster: ClusterFacts = field(
        default_factory=lambda: ClusterFacts(
            cluster_id=CLUSTER_ID,
            controller_id=3,
            brokers=dict.fromkeys((1, 2, 3), BrokerFacts(is_answering=True, release="3.9")),
            topics={"orders": topic(), "__consumer_offsets": topic()},
        )
    )
    zookeeper: ZooKeeperFacts = field(
        default_factory=lambda: ZooKeeperFacts(version="3.8.4", is_migrating=False)
    )

    def __post_init__(self) -> None:
        self.log_dir = self.directory / "data"
        self.settings = {
            "broker.id": "1",
            "listeners": "PLAINTEXT://:9092",
            "zookeeper.connect": "zk1:2181,zk2:2181/kafka",
            "log.dirs": str(self.log_dir),
            "num.partitions": "6",
            "num.io.threads": "16",
            "default.replication.factor": "3",
            **self.settings,
        }

    def with_topic(self, name: str, facts: TopicFacts) -> None:
        """Add a topic."""
        self.cluster = replace(self.cluster, topics={**self.cluster.topics, name: facts})

    def write(self) -> Path:
        """Write the files; return the ``server.properties``."""
        for name, data in self.segments.items():
            path = self.log_dir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        if self.meta is not None:
            self.log_dir.mkdir(exist_ok=True)
            (self.log_dir / "meta.properties").write_text(self.meta)
        file = self.directory / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        return file


def topic(
    *, partitions: int = 2, replicas: tuple[int, ...] = (1, 2, 3), isr: tuple[int, ...] | None = None
) -> TopicFacts:
    """Return a topic whose partitions all have these replicas."""
    return TopicFacts(
        replicas=dict.fromkeys(range(partitions), replicas),
        isr=dict.fromkeys(range(partitions), replicas if isr is None else isr),
        min_in_sync=2,
    )


def with_secured_listener(cluster: Prepared, mechanisms: str, **jaas: str) -> None:
    """Give the brokers a listener with SASL, and login modules of mechanisms."""
    cluster.settings |= {
        "listeners": "PLAINTEXT://:9092,SASL_PLAINTEXT://:9094",
        "sasl.enabled.mechanisms": mechanisms,
        **{
            f"listener.name.sasl_plaintext.{mechanism}.sasl.jaas.config": text
            for mechanism, text in jaas.items()
        },
    }


PLAIN_MODULE = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required username=a password=b user_a=b;"
)
KERBEROS_MODULE = (
    "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
    'keyTab="/etc/kafka.keytab" principal="kafka/host@REALM";'
)

Plant = Callable[[Prepared], None]
Obstacles = set[tuple[Level, str]]


def _settings(**settings: str) -> Plant:
    return lambda cluster: cluster.settings.update(_dotted(settings))


def _dotted(settings: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): text for name, text in settings.items()}


def _no_obstacle(cluster: Prepared) -> None:
    pass


def _old_protocol(cluster: Prepared) -> None:
    cluster.settings |= _dotted({"inter_broker_protocol_version": "2.7"})
    cluster.zookeeper = replace(cluster.zookeeper, topics_without_id=["orders"])


def _old_formats(cluster: Prepared) -> None:
    """Not an obstacle: Kalda reads all three formats and all codecs."""
    cluster.settings |= _dotted({"log_message_format_version": "0.10.2"})
    cluster.segments |= {
        "old-0/00000000000000000000.log": batch_head(0),
        "old-1/00000000000000000000.log": batch_head(1, codec=1),
        "old-1/00000000000000000100.log": batch_head(2, codec=3),
    }


def _tiered(cluster: Prepared) -> None:
    cluster.settings |= _dotted(
        {
            "remote_log_storage_system_enable": "true",
            "remote_log_storage_manager_class_name": "com.example.Storage",
            "rsm_config_bucket": "logs",
        }
    )
    cluster.segments["__remote_log_metadata-0/00000000000000000000.log"] = batch_head(2)
    cluster.with_topic("archive", replace(topic(), settings={"remote.storage.enable": "true"}))


def _kerberos(cluster: Prepared) -> None:
    with_secured_listener(cluster, "GSSAPI", gssapi=KERBEROS_MODULE)
    cluster.settings |= _dotted(
        {"sasl_kerberos_service_name": "kafka", "sasl_kerberos_kinit_cmd": "/opt/kinit"}
    )


def _jaas_file(cluster: Prepared) -> None:
    with_secured_listener(cluster, "SCRAM-SHA-512,PLAIN")


def _secured(cluster: Prepared) -> None:
    """Not an obstacle: the login modules are in the settings."""
    with_secured_listener(cluster, "SCRAM-SHA-512,PLAIN", plain=PLAIN_MODULE)


def _unknown_mechanism(cluster: Prepared) -> None:
    with_secured_listener(cluster, "PLAIN,AWS_MSK_IAM", plain=PLAIN_MODULE)


def _kraft_directory(cluster: Prepared) -> None:
    cluster.meta = f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=1\n"
    cluster.segments["__cluster_metadata-0/00000000000000000000.log"] = batch_head(2)


def _foreign_directory(cluster: Prepared) -> None:
    cluster.meta = "version=0\ncluster.id=otherClusterAAAAAAAAAA\nbroker.id=7\n"


def _second_directory(cluster: Prepared) -> None:
    """One directory is gone, and in the other a replica arrives and a stray lies."""
    cluster.settings["log.dirs"] += f",{cluster.directory / 'gone'}"
    unique = "0123456789abcdef0123456789abcdef"
    cluster.segments[f"orders-0.{unique}-future/00000000000000000000.log"] = batch_head(2)
    cluster.segments[f"orders-9.{unique}-stray/00000000000000000000.log"] = batch_head(2)


def _damaged_segment(cluster: Prepared) -> None:
    cluster.segments["orders-0/00000000000000000000.log"] = b"\x00\x01garbage" * 20
    cluster.meta = None


def _to_kraft(cluster: Prepared) -> None:
    cluster.settings |= _dotted(
        {
            "zookeeper_metadata_migration_enable": "true",
            "controller_quorum_voters": "9@c:9093",
            "controller_listener_names": "CONTROLLER",
        }
    )
    cluster.zookeeper = replace(cluster.zookeeper, is_migrating=True)


def _kraft(cluster: Prepared) -> None:
    cluster.settings = _dotted(
        {
            "process_roles": "broker,controller",
            "node_id": "1",
            "controller_quorum_voters": "1@c:9093",
            "controller_listener_names": "CONTROLLER",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        }
    )
    broker = BrokerFacts(is_answering=True, is_kraft=True, release="4.1")
    cluster.cluster = replace(cluster.cluster, brokers=dict.fromkeys((1, 2, 3), broker))


def _unhealthy(cluster: Prepared) -> None:
    brokers = dict(cluster.cluster.brokers)
    del brokers[2]
    cluster.cluster = replace(
        cluster.cluster, brokers=brokers, reassigning=4, offline_dirs=["/data of broker 3"]
    )
    cluster.with_topic("late", topic(isr=(1, 3)))
    cluster.with_topic("dead", replace(topic(replicas=(2,), isr=(2,)), leaderless=(0, 1)))


def _thin(cluster: Prepared) -> None:
    cluster.with_topic("single", topic(replicas=(1,)))
    cluster.with_topic("tight", topic(replicas=(1, 2)))


def _newer_groups(cluster: Prepared) -> None:
    cluster.cluster = replace(cluster.cluster, consumer_groups=["readers"], features={"group.version": 1})


def _old_zookeeper(cluster: Prepared) -> None:
    cluster.zookeeper = replace(cluster.zookeeper, version="3.4.14", deleting=["gone"], has_reassignment=True)
    brokers = dict.fromkeys((1, 2, 3), BrokerFacts(is_answering=True, release="2.4"))
    cluster.cluster = replace(cluster.cluster, brokers=brokers)


def _defaults(cluster: Prepared) -> None:
    del cluster.settings["listeners"]
    del cluster.settings["log.dirs"]


CLUSTERS: list[tuple[str, Plant, Obstacles]] = [
    ("nothing planted", _no_obstacle, set()),
    (
        "inter-broker protocol 2.7",
        _old_protocol,
        {(LOOK, "inter.broker.protocol.version"), (LOOK, "topic ids")},
    ),
    ("formats 0 and 1", _old_formats, set()),
    (
        "a newer protocol than Kafka 3.9 has",
        _settings(inter_broker_protocol_version="4.0"),
        {(STOPS, "inter.broker.protocol.version")},
    ),
    (
        "policies",
        _settings(
            create_topic_policy_class_name="com.example.P", alter_config_policy_class_name="com.example.Q"
        ),
        {(STOPS, "create.topic.policy.class.name"), (STOPS, "alter.config.policy.class.name")},
    ),
    (
        "an authorizer, a builder of principals and a quota callback of one's own",
        _settings(
            authorizer_class_name="com.example.Authorizer",
            principal_builder_class="com.example.Builder",
            client_quota_callback_class="com.example.Quotas",
        ),
        {
            (STOPS, "authorizer.class.name"),
            (STOPS, "principal.builder.class"),
            (STOPS, "client.quota.callback.class"),
        },
    ),
    (
        "reporters and an interceptor",
        _settings(metric_reporters="com.example.Reporter", broker_interceptor_class="com.example.Spy"),
        {(LOOK, "metric.reporters"), (STOPS, "broker.interceptor.class")},
    ),
    (
        "tiered storage",
        _tiered,
        {
            (STOPS, "remote.log.storage.system.enable"),
            (STOPS, "tiered storage"),
            (STOPS, "remote.storage.enable"),
        },
    ),
    ("kerberos", _kerberos, {(LOOK, "kerberos")}),
    (
        "a JAAS file of the JVM",
        _jaas_file,
        {(STOPS, "listener.name.sasl_plaintext.plain.sasl.jaas.config")},
    ),
    ("login modules in the settings", _secured, set()),
    ("a mechanism of another vendor", _unknown_mechanism, {(STOPS, "sasl.enabled.mechanisms")}),
    (
        "settings of Kafka 2.8 and typing errors",
        _settings(host_name="broker1", log_retention_hours="ten", num_partitons="3", min_insync_replicas="0"),
        {
            (STOPS, "host.name"),
            (STOPS, "log.retention.hours"),
            (STOPS, "num.partitons"),
            (STOPS, "min.insync.replicas"),
        },
    ),
    ("a directory of KRaft", _kraft_directory, {(STOPS, "kraft directory")}),
    (
        "a directory of another broker and cluster",
        _foreign_directory,
        {(STOPS, "broker.id"), (STOPS, "cluster.id")},
    ),
    (
        "a directory that is gone, a move and a stray",
        _second_directory,
        {(STOPS, "log directory"), (LOOK, "future logs"), (LOOK, "stray logs")},
    ),
    (
        "a damaged segment, no meta.properties",
        _damaged_segment,
        {(LOOK, "segments"), (LOOK, "meta.properties")},
    ),
    (
        "a cluster on its way to KRaft",
        _to_kraft,
        {(STOPS, "zookeeper.metadata.migration.enable"), (STOPS, "kraft migration")},
    ),
    ("a cluster of KRaft", _kraft, {(STOPS, "process.roles"), (STOPS, "kraft")}),
    (
        "a broker is down, a directory is offline, partitions move",
        _unhealthy,
        {
            (STOPS, "brokers"),
            (STOPS, "offline directory"),
            (STOPS, "reassignment"),
            (STOPS, "in-sync replicas"),
            (STOPS, "offline partitions"),
            (LOOK, "single replicas"),
        },
    ),
    ("few replicas", _thin, {(LOOK, "single replicas"), (LOOK, "min.insync.replicas")}),
    (
        "groups of the consumer protocol",
        _newer_groups,
        {(STOPS, "group protocol"), (LOOK, "features")},
    ),
    (
        "an old ZooKeeper and old brokers",
        _old_zookeeper,
        {
            (STOPS, "zookeeper version"),
            (STOPS, "reassignment"),
            (LOOK, "deletions"),
            (LOOK, "release"),
        },
    ),
    (
        "access lists at ZooKeeper with a login of the JVM",
        _settings(zookeeper_set_acl="true"),
        {(STOPS, "zookeeper.set.acl")},
    ),
    (
        "a key store that cannot be read",
        _settings(ssl_keystore_location="/gone/keystore.jks"),
        {(STOPS, "ssl.keystore.location")},
    ),
    ("defaults that differ", _defaults, {(STOPS, "listeners"), (STOPS, "log.dirs")}),
]
"""The clusters: a title, what is planted, and the obstacles that the check has to name; all else fits."""
