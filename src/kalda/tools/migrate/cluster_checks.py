"""Judges a running cluster for a change to Kalda's brokers. Pure functions on facts that a reader found."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kalda.common.log_text import counted
from kalda.tools.migrate.settings_checks import protocol_version
from kalda.tools.migrate.verdicts import Level, Verdict

_CLUSTER: Final = "cluster"
_ZOOKEEPER: Final = "ZooKeeper"
_SHOWN_MAX: Final = 5
_ZOOKEEPER_MIN: Final = (3, 6)
_OLDEST_TESTED: Final = (2, 7)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """One broker of the cluster."""

    is_answering: bool
    is_kraft: bool = False
    """Whether it serves no LeaderAndIsr, which brokers of ZooKeeper mode do."""
    is_kalda: bool = False
    release: str | None = None
    """The newest release of Kafka whose requests it serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """One topic: what matters of its partitions and settings."""

    has_id: bool = True
    replicas: Mapping[int, Sequence[int]] = field(default_factory=dict)
    isr: Mapping[int, Sequence[int]] = field(default_factory=dict)
    leaderless: Sequence[int] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """Those that were set for the topic."""
    min_in_sync: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """A cluster as its brokers describe it."""

    cluster_id: str | None
    controller_id: int | None
    brokers: Mapping[int, BrokerFacts]
    topics: Mapping[str, TopicFacts]
    features: Mapping[str, int] = field(default_factory=dict)
    """The finalized features and their levels."""
    reassigning: int = 0
    offline_dirs: Sequence[str] = ()
    consumer_groups: Sequence[str] = ()
    """Groups of the protocol of KIP-848."""
    other_groups: Sequence[str] = ()
    """Share and streams groups."""
    unread: Sequence[str] = ()
    """What could not be read, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperFacts:
    """What is in ZooKeeper alone."""

    version: str | None
    """As its server says; None if it does not answer `srvr`."""
    is_migrating: bool
    """Whether the cluster was on its way to KRaft: there is `/migration`."""
    deleting: Sequence[str] = ()
    """Topics whose deletion waits."""
    has_reassignment: bool = False
    """Whether a reassignment by the tools before 2.4 waits in `/admin/reassign_partitions`."""
    topics_without_id: Sequence[str] = ()
    cluster_id: str | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    """The finalized features in `/feature`."""


def check_cluster(facts: ClusterFacts) -> list[Verdict]:
    """Judge a cluster by what its brokers describe."""
    if any(each.is_kraft for each in facts.brokers.values()):
        ids = ", ".join(str(key) for key, each in sorted(facts.brokers.items()) if each.is_kraft)
        text = (
            f"brokers {ids} are in KRaft mode, which Kalda cannot join; copy the cluster with `kalda mirror "
            "cutover`"
        )
        return [Verdict(Level.STOPS, "kraft", _CLUSTER, text)]
    found = [*_check_brokers(facts), *_check_features(facts.features, _CLUSTER), *_check_groups(facts)]
    for name, topic in sorted(facts.topics.items()):
        found += _check_topic_settings(name, topic)
    found += _check_partitions(facts.topics)
    if facts.reassigning:
        moves = counted(facts.reassigning, "partition")
        text = f"moves of {moves} are under way; wait until `kalda reassign` shows the end"
        found.append(Verdict(Level.STOPS, "reassignment", _CLUSTER, text))
    for place in facts.offline_dirs:
        text = f"log directory {place} is offline; mend it first"
        found.append(Verdict(Level.STOPS, "offline directory", _CLUSTER, text))
    found += [Verdict(Level.LOOK, "not read", _CLUSTER, each) for each in facts.unread]
    text = (
        "brokers of Kafka do not say which clients connect; Kalda serves clients of all releases from 0.8.2 "
        "to 4.4"
    )
    found.append(Verdict(Level.FITS, "clients", _CLUSTER, text))
    return found


def check_zookeeper(facts: ZooKeeperFacts) -> list[Verdict]:
    """Judge what ZooKeeper holds."""

    def verdict(level: Level, subject: str, text: str) -> Verdict:
        return Verdict(level, subject, _ZOOKEEPER, text)

    found = [*_check_features(facts.features, _ZOOKEEPER)]
    version = None if facts.version is None else protocol_version(facts.version)
    if version is None:
        text = (
            "the server does not say its version (`srvr` is not among its four-letter words); 3.6 is needed"
        )
        found.append(verdict(Level.LOOK, "zookeeper version", text))
    elif version < _ZOOKEEPER_MIN:
        text = f"ZooKeeper {facts.version} is older than 3.6; upgrade the ensemble first"
        found.append(verdict(Level.STOPS, "zookeeper version", text))
    else:
        found.append(verdict(Level.FITS, "zookeeper version", f"ZooKeeper {facts.version}"))
    if facts.is_migrating:
        text = (
            "the znode /migration says that the cluster was on its way to KRaft; go back in the way of Kafka"
        )
        found.append(verdict(Level.STOPS, "kraft migration", text))
    if facts.deleting:
        text = f"topics wait for their deletion: {_shown(facts.deleting)}; it ends when all their brokers run"
        found.append(verdict(Level.LOOK, "deletions", text))
    if facts.has_reassignment:
        text = "a reassignment waits in /admin/reassign_partitions; let it end"
        found.append(verdict(Level.STOPS, "reassignment", text))
    if facts.topics_without_id:
        text = (
            f"topics without an id: {_shown(facts.topics_without_id)}. The controller gives ids once "
            "`inter.broker.protocol.version` is 2.8 or newer; raise it first"
        )
        found.append(verdict(Level.LOOK, "topic ids", text))
    return found


def _check_brokers(facts: ClusterFacts) -> Iterator[Verdict]:
    silent = [str(key) for key, each in sorted(facts.brokers.items()) if not each.is_answering]
    needed = {
        broker for topic in facts.topics.values() for each in topic.replicas.values() for broker in each
    }
    silent += [str(each) for each in sorted(needed - facts.brokers.keys())]
    if silent:
        text = f"brokers that do not run: {', '.join(silent)}; start them first"
        yield Verdict(Level.STOPS, "brokers", _CLUSTER, text)
    if facts.controller_id is None:
        text = "there is no controller; look at the brokers' logs"
        yield Verdict(Level.STOPS, "controller", _CLUSTER, text)
    for key, each in sorted(facts.brokers.items()):
        if not each.is_answering:
            continue
        where = f"broker {key}"
        name = "Kalda" if each.is_kalda else f"Kafka {each.release or 'before 2.1'} (as its requests show)"
        version = None if each.release is None else protocol_version(each.release)
        if each.is_kalda or (version is not None and version >= _OLDEST_TESTED):
            yield Verdict(Level.FITS, "release", where, name)
        else:
            text = f"{name}: mixed clusters were tested from 2.7 on; upgrade Kafka first"
            yield Verdict(Level.LOOK, "release", where, text)
    count = len(facts.brokers)
    if count == 1:
        text = "the only broker: the cluster cannot be used while it is replaced"
        yield Verdict(Level.LOOK, "one broker", _CLUSTER, text)


def _check_features(features: Mapping[str, int], where: str) -> Iterator[Verdict]:
    levels = ", ".join(f"{name}={level}" for name, level in sorted(features.items()) if level)
    if levels:
        text = (
            f"finalized features: {levels}. Kafka in ZooKeeper mode supports none: they are out of force "
            "while a broker of Kafka is in the cluster; `kalda features upgrade` brings them back behind "
            "the last one"
        )
        yield Verdict(Level.LOOK, "features", where, text)
    else:
        yield Verdict(Level.FITS, "features", where, "no feature is finalized")


def _check_groups(facts: ClusterFacts) -> Iterator[Verdict]:
    if facts.consumer_groups:
        text = (
            f"groups of the consumer protocol (KIP-848): {_shown(facts.consumer_groups)}. Kafka in "
            "ZooKeeper mode has none; set `group.protocol`=classic in their clients first"
        )
        yield Verdict(Level.STOPS, "group protocol", _CLUSTER, text)
    if facts.other_groups:
        text = f"share or streams groups: {_shown(facts.other_groups)}; Kalda has no such groups"
        yield Verdict(Level.STOPS, "group protocol", _CLUSTER, text)


def _check_topic_settings(name: str, topic: TopicFacts) -> Iterator[Verdict]:
    where = f"topic {name}"
    if topic.settings.get("remote.storage.enable", "").lower() == "true":
        text = "`remote.storage.enable`=true: segments in tiered storage could not be read"
        yield Verdict(Level.STOPS, "remote.storage.enable", where, text)


def _check_partitions(topics: Mapping[str, TopicFacts]) -> Iterator[Verdict]:
    single, tight, lagging, leaderless = [], [], [], []
    total = 0
    for name, topic in sorted(topics.items()):
        total += len(topic.replicas)
        leaderless += [f"{name}-{partition}" for partition in topic.leaderless]
        for partition, replicas in topic.replicas.items():
            label = f"{name}-{partition}"
            if len(topic.isr.get(partition, ())) < len(replicas):
                lagging.append(label)
            if len(replicas) == 1:
                single.append(label)
            elif topic.min_in_sync >= len(replicas):
                tight.append(label)
    if leaderless:
        text = f"no leader: {_shown(leaderless)}; bring a replica back first"
        yield Verdict(Level.STOPS, "offline partitions", _CLUSTER, text)
    lagging = [each for each in lagging if each not in leaderless]
    if lagging:
        text = f"not all replicas are in sync: {_shown(lagging)}; wait, or find out why"
        yield Verdict(Level.STOPS, "in-sync replicas", _CLUSTER, text)
    if single:
        text = (
            f"one replica only: {_shown(single)}; nobody can read or write these while their broker is "
            "replaced (seconds), or add a replica with `kalda reassign`"
        )
        yield Verdict(Level.LOOK, "single replicas", _CLUSTER, text)
    if tight:
        text = (
            f"`min.insync.replicas` is the number of replicas: {_shown(tight)}; producers with acks=all "
            "wait while a broker is replaced"
        )
        yield Verdict(Level.LOOK, "min.insync.replicas", _CLUSTER, text)
    yield Verdict(
        Level.FITS,
        "partitions",
        _CLUSTER,
        f"{counted(total, 'partition')} of {counted(len(topics), 'topic')}",
    )
    without_id = sorted(name for name, topic in topics.items() if not topic.has_id)
    if without_id:
        text = (
            f"topics without an id: {_shown(without_id)}. The controller gives ids once "
            "`inter.broker.protocol.version` is 2.8 or newer; raise it first"
        )
        yield Verdict(Level.LOOK, "topic ids", _CLUSTER, text)


def _shown(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN_MAX
    return ", ".join(sorted(names)[:_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
