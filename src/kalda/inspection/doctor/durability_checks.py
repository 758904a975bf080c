"""Checks of replication factors and of the settings beside them. Pure functions."""

from collections.abc import Iterator
from typing import Final

from kalda.common.types import TopicPartition
from kalda.inspection.doctor.findings import Finding, Severity, counted, some
from kalda.inspection.doctor.snapshot import ClusterSnapshot

_REPLICATED_FROM: Final = 3
"""Brokers of a cluster in which topics are expected to have several replicas: with two, one broker that is
down for maintenance leaves one copy anyway."""

_FACTOR_DOCUMENTED: Final = 3


def check_replication_factors(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find topics with one replica, and internal ones with less than three, in a cluster of three or more."""
    if len(cluster.known_brokers) < _REPLICATED_FROM:
        return
    factors = {name: factor for name, factor in _factors(cluster).items() if factor}
    single = [each for each, factor in factors.items() if factor == 1 and not is_internal(cluster, each)]
    internal = [
        f"{each} ({factor})"
        for each, factor in factors.items()
        if factor < _FACTOR_DOCUMENTED and is_internal(cluster, each)
    ]
    if single:
        yield Finding(
            check="topics.one-replica",
            severity=Severity.WARNING,
            what=f"{counted(single, 'topic has', 'topics have')} partitions with one replica.",
            evidence=f"{some(single)}; the cluster has {len(cluster.known_brokers)} brokers",
            why="If the broker stops, the partition is unavailable; if its disk fails, the records are lost.",
            mend="kalda reassign execute --reassignment-json-file FILE  # with more replicas each",
        )
    if internal:
        yield Finding(
            check="topics.internal-replicas",
            severity=Severity.WARNING,
            what=f"{counted(internal, 'internal topic has', 'internal topics have')} fewer than "
            f"{_FACTOR_DOCUMENTED} replicas.",
            evidence=some(internal),
            why="Groups lose their offsets, or transactions their state, when a broker or its disk fails.",
            mend="kalda reassign execute --reassignment-json-file FILE  # with three replicas each",
        )


def check_min_in_sync(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Compare `min.insync.replicas` with the number of replicas."""
    above, equal, low = [], [], []
    for name, factor in _factors(cluster).items():
        least = cluster.topic_number(name, "min.insync.replicas")
        if not factor or least is None:
            continue
        if least > factor:
            above.append(f"{name} (minimum {least}, replicas {factor})")
        elif least == factor > 1:
            equal.append(f"{name} (minimum {least}, replicas {factor})")
        elif least == 1 and factor >= _FACTOR_DOCUMENTED and not is_internal(cluster, name):
            low.append(name)
    if above:
        yield Finding(
            check="topics.min-isr-above-replicas",
            severity=Severity.WARNING,
            what=f"{counted(above, 'topic asks', 'topics ask')} for more in-sync replicas than there are.",
            evidence=some(above),
            why="Writes with acks=all fail as soon as one broker stops; Apache Kafka before 3.7 refuses all.",
            mend="kalda configs alter --topic TOPIC --add-config min.insync.replicas=…",
        )
    if equal:
        yield Finding(
            check="topics.min-isr-equals-replicas",
            severity=Severity.WARNING,
            what=f"{counted(equal, 'topic needs', 'topics need')} all replicas in sync.",
            evidence=some(equal),
            why="When one broker stops or restarts, writes with acks=all fail until it is back in sync.",
            mend="kalda configs alter --topic TOPIC --add-config min.insync.replicas=…  # one less",
        )
    if low:
        yield Finding(
            check="topics.min-isr-one",
            severity=Severity.ADVICE,
            what=f"{counted(low, 'topic has', 'topics have')} min.insync.replicas=1 with three or more "
            "replicas.",
            evidence=some(low),
            why="A write with acks=all is confirmed with one copy when the other replicas are out of sync.",
            mend="kalda configs alter --topic TOPIC --add-config min.insync.replicas=2",
        )


def check_default_factor(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find brokers of a cluster of three that create topics with one replica."""
    ones = [each for each, value in cluster.settings_with_value("default.replication.factor") if value == "1"]
    if ones and len(cluster.known_brokers) >= _REPLICATED_FROM:
        yield Finding(
            check="settings.default-one-replica",
            severity=Severity.ADVICE,
            what="New topics get one replica unless their creator asks for more.",
            evidence=f"default.replication.factor=1 on brokers {some(ones)}",
            why="A topic that is created by its first use is lost with one disk.",
            mend="set default.replication.factor=3 in server.properties and restart the brokers",
        )


def check_unclean_election(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find topics and brokers that allow unclean leader election."""
    name = "unclean.leader.election.enable"
    brokers = [each for each, value in cluster.settings_with_value(name) if value == "true"]
    topics = [each for each in cluster.topics if cluster.topic_setting(each, name) == "true"]
    if brokers or topics:
        places = [f"brokers {some(brokers)}"] if brokers else []
        places += [f"topics {some(topics)}"] if topics else []
        yield Finding(
            check="settings.unclean-election",
            severity=Severity.WARNING,
            what="Replicas that lack records may become leaders.",
            evidence=f"{name}=true: {'; '.join(places)}",
            why="Confirmed records are lost silently when the brokers in sync fail, and copies can diverge.",
            mend=f"kalda configs alter --topic TOPIC --add-config {name}=false  # and in server.properties",
        )


def check_transaction_log(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Compare the minimum and the replication factor that brokers have for the transaction log."""
    found: dict[str, list[int]] = {}
    severity = Severity.WARNING
    for broker_id in sorted(cluster.broker_settings):
        least = cluster.broker_number(broker_id, "transaction.state.log.min.isr")
        factor = cluster.broker_number(broker_id, "transaction.state.log.replication.factor")
        if least is None or factor is None:
            continue
        is_low = least == 1 and factor > 1
        if least > factor or least == factor > 1 or is_low:
            severity = max(severity, Severity.CRITICAL if least > factor else Severity.WARNING)
            text = f"transaction.state.log.min.isr={least}, transaction.state.log.replication.factor={factor}"
            found.setdefault(text, []).append(broker_id)
    if found:
        yield Finding(
            check="settings.transaction-log-min-isr",
            severity=severity,
            what="The transaction log's minimum of in-sync replicas does not fit its replication factor.",
            evidence="; ".join(f"{text} on brokers {some(ids)}" for text, ids in found.items()),
            why="Above or at the factor, transactions fail while a broker is down; with 1, a confirmed "
            "commit can be lost.",
            mend="set transaction.state.log.min.isr=2, with transaction.state.log.replication.factor=3",
        )


def is_internal(cluster: ClusterSnapshot, topic: str) -> bool:
    """Return whether a topic is one that brokers use for themselves."""
    return cluster.topics[topic].is_internal or topic.startswith("__")


def _factors(cluster: ClusterSnapshot) -> dict[str, int]:
    """Return the smallest number of replicas of each topic's partitions, those in addition left out."""
    factors = {}
    for name, topic in sorted(cluster.topics.items()):
        counts = []
        for each in topic.partitions:
            moving = cluster.reassignments.get(TopicPartition(name, each.partition))
            counts.append(len(each.replicas) - (len(moving.adding_replicas) if moving else 0))
        factors[name] = min(counts, default=0)
    return factors
