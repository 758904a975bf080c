"""Judges the log directories of a broker by what is in them. Pure functions on facts that a reader found."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kalda.common.log_text import counted
from kalda.tools.migrate.verdicts import Level, Verdict

_CLUSTER_METADATA = "__cluster_metadata-0"
_SHOWN_MAX = 5
"""How many names a verdict lists: more would hide the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFacts:
    """One log directory of a broker."""

    path: str
    problem: str | None = None
    """Why the directory cannot be used or read; the other fields are empty then."""
    meta_version: int | None = None
    """The version of ``meta.properties``; None if there is none."""
    meta_broker_id: int | None = None
    meta_cluster_id: str | None = None
    meta_problem: str | None = None
    """Why ``meta.properties`` cannot be read."""
    partitions: Sequence[str] = ()
    """The directories of partitions, as ``topic-0``."""
    futures: Sequence[str] = ()
    """Directories of replicas that are being moved from another log directory."""
    strays: Sequence[str] = ()
    segments_by_format: Mapping[int, int] = field(default_factory=dict)
    """Segments by the message format (0, 1, 2) of their first batch."""
    segments_by_codec: Mapping[str, int] = field(default_factory=dict)
    """Segments by the codec of their first batch."""
    unreadable: Sequence[str] = ()
    """Segments whose first bytes are no batch."""
    is_owned: bool = True
    """Whether this process may write to all that was looked at."""
    usable_bytes: int | None = None
    total_bytes: int | None = None


def check_directories(
    directories: Sequence[DirectoryFacts], *, broker_id: int | None, cluster_id: str | None
) -> list[Verdict]:
    """Judge the log directories of one broker.

    Args:
        directories: all of them.
        broker_id: the id of the settings; None if they set none, or -1.
        cluster_id: the cluster's id where a broker or ZooKeeper said it.
    """
    found = [verdict for each in directories for verdict in _check_one(each, broker_id, cluster_id)]
    ids = {each.meta_cluster_id for each in directories if each.meta_cluster_id}
    if len(ids) > 1:
        text = f"the directories belong to different clusters: {', '.join(sorted(ids))}"
        found.append(Verdict(Level.STOPS, "cluster.id", _places(directories), text))
    broker_ids = {each.meta_broker_id for each in directories if each.meta_broker_id is not None}
    if len(broker_ids) > 1:
        text = f"the directories belong to different brokers: {', '.join(map(str, sorted(broker_ids)))}"
        found.append(Verdict(Level.STOPS, "broker.id", _places(directories), text))
    return found


def _check_one(each: DirectoryFacts, broker_id: int | None, cluster_id: str | None) -> Iterator[Verdict]:
    def verdict(level: Level, subject: str, text: str) -> Verdict:
        return Verdict(level, subject, each.path, text)

    if each.problem is not None:
        yield verdict(Level.STOPS, "log directory", each.problem)
        return
    if each.meta_version == 1 or _CLUSTER_METADATA in each.partitions:
        text = (
            "a directory of a KRaft node (meta.properties of version 1, or a metadata log): Kalda has no "
            "KRaft"
        )
        yield verdict(Level.STOPS, "kraft directory", text)
        return
    yield from _check_meta(each, broker_id, cluster_id)
    tiered = [name for name in each.partitions if name.startswith("__remote_log_metadata-")]
    if tiered:
        text = "tiered storage is or was in use (__remote_log_metadata): segments in it could not be read"
        yield verdict(Level.STOPS, "tiered storage", text)
    if not each.is_owned:
        text = "files that this user may not write: run Kalda as the user of Kafka (and this check too)"
        yield verdict(Level.STOPS, "owner", text)
    if each.futures:
        text = (
            f"replicas are being moved here: {_shown(each.futures)}; wait until `kalda reassign` shows the "
            "end"
        )
        yield verdict(Level.LOOK, "future logs", text)
    if each.strays:
        text = f"Kafka set strays aside: {_shown(each.strays)}; find out why, then delete them"
        yield verdict(Level.LOOK, "stray logs", text)
    if each.unreadable:
        text = f"no batch at the beginning of {_shown(each.unreadable)}: `kalda dump-log` shows more"
        yield verdict(Level.LOOK, "segments", text)
    if each.usable_bytes is not None and each.total_bytes and each.usable_bytes * 20 < each.total_bytes:
        text = f"{each.usable_bytes * 100 // each.total_bytes} % of the volume are free; make room first"
        yield verdict(Level.LOOK, "free space", text)
    formats = ", ".join(
        f"{count} of format {magic}" for magic, count in sorted(each.segments_by_format.items())
    )
    codecs = ", ".join(f"{count} {codec}" for codec, count in sorted(each.segments_by_codec.items()))
    text = counted(len(each.partitions), "partition")
    if formats:
        text += f", segments: {formats}; first batches: {codecs}. Kalda reads and keeps these"
    yield verdict(Level.FITS, "log directory", text)


def _check_meta(each: DirectoryFacts, broker_id: int | None, cluster_id: str | None) -> Iterator[Verdict]:
    def stops(subject: str, text: str) -> Verdict:
        return Verdict(Level.STOPS, subject, each.path, text)

    if each.meta_problem is not None:
        yield stops("meta.properties", f"{each.meta_problem}; Kafka would not start either")
    elif each.meta_version is None and each.partitions:
        text = "logs but no meta.properties: a broker takes the directory for its own"
        yield Verdict(Level.LOOK, "meta.properties", each.path, text)
    if None not in (broker_id, each.meta_broker_id) and broker_id != each.meta_broker_id:
        yield stops("broker.id", f"the directory is that of broker {each.meta_broker_id}, not of {broker_id}")
    if cluster_id and each.meta_cluster_id and cluster_id != each.meta_cluster_id:
        yield stops("cluster.id", f"the directory is of cluster {each.meta_cluster_id}, not of {cluster_id}")


def _places(directories: Sequence[DirectoryFacts]) -> str:
    return ", ".join(each.path for each in directories)


def _shown(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN_MAX
    return ", ".join(sorted(names)[:_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
