"""Decides which topics and settings a mirror copies, how copies are named, and which would form a cycle.

Pure decisions; the admin client is elsewhere. A topic that came from the target is never copied back to it.
Two mirrors would otherwise fill both clusters without an end.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

GROUP_PREFIX: Final = "kalda-mirror-"
"""The groups in the target that hold the progress of mirrors."""

SYNCS_TOPIC: Final = "__kalda_mirror_syncs"
"""The topic in the target that says which source offset became which target offset."""

HEARTBEATS_TOPIC: Final = "heartbeats"
"""The topic in each cluster that mirrors write to, so that its copies show which of them are alive."""

CLUSTER_CONFIGS: Final = re.compile(
    "|".join(
        (
            *(
                re.escape(each)
                for each in (
                    "follower.replication.throttled.replicas",
                    "leader.replication.throttled.replicas",
                    "unclean.leader.election.enable",
                    "min.insync.replicas",
                )
            ),
            r"kalda\.schema\..+",
        )
    )
)
"""Settings of topics that concern the cluster; MirrorMaker leaves the first ones out, too.

Records were checked by their schemas where they were produced. The target may have no registry, or be Apache
Kafka, which refuses settings of Kalda's own."""

_TIMESTAMP_CONFIGS: Final = re.compile(r"message\.timestamp\..*")
"""Never copied: the timestamps of a copy are those of the original, so the target must neither replace nor
refuse them."""


class MirrorError(ValueError):
    """A mirror cannot do what it was asked for; the message says what to change."""


class RenameRule(Enum):
    """What a copy is called in the target."""

    IDENTITY = "identity"
    PREFIX = "prefix"


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Selects topics or groups by their whole names; what is excluded is not included."""

    included: re.Pattern[str]
    excluded: re.Pattern[str] | None = None

    def __call__(self, name: str) -> bool:
        """Return whether a name is selected."""
        if self.excluded is not None and self.excluded.fullmatch(name):
            return False
        return self.included.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class MirrorNames:
    """The names of topics on both sides.

    Args:
        source: the name of the source cluster, which the prefix uses.
        target: the name of the target cluster.
        topics: which topics are copied.
        separator: what stands between the source's name and a topic's in the name of a copy.
        copies_heartbeats: whether topics of heartbeats are copied, too, whatever `topics` says.
        circles: ways back from the target to the source, by the filters of the mirrors on each; a topic that
            passes one of the ways, with names that stay as they are, is refused.
    """

    source: str
    target: str
    topics: NameFilter
    rule: RenameRule = RenameRule.IDENTITY
    separator: str = "."
    copies_heartbeats: bool = False
    circles: Sequence[Sequence[NameFilter]] = ()

    def target_topic(self, topic: str) -> str:
        """Return the name of a topic's copy.

        Heartbeats always get the prefix, which shows how many clusters they passed (KIP-382).
        """
        if self.rule is RenameRule.IDENTITY and not self._is_heartbeats(topic):
            return topic
        return f"{self.source}{self.separator}{topic}"

    def is_from_target(self, topic: str) -> bool:
        """Return whether the name says that the topic is a copy of one in the target, or of a copy here.

        The names of all clusters that a topic passed stand before its own. `MirrorSourceConnector.isCycle` of
        MirrorMaker looks at them in the same way.
        """
        if self.rule is RenameRule.IDENTITY and not self._is_heartbeats(topic):
            return False
        passed = topic.split(self.separator)[:-1]
        return self.target in passed or passed[:1] == [self.source]

    def selected(self, topics: Iterable[str]) -> list[str]:
        """Return the topics to copy, sorted: they are selected, are not internal and are no copies.

        Raises:
            MirrorError: a topic would come back by other mirrors.
        """
        found = sorted(each for each in topics if self._is_selected(each) and not self.is_from_target(each))
        for each in found if self.rule is RenameRule.IDENTITY else ():
            if any(all(passes(each) for passes in circle) for circle in self.circles):
                raise MirrorError(
                    f"topic {each} is copied from {self.source} to {self.target} and, by other mirrors of "
                    "the file, back: records would go round in a circle; leave it out of the topics of one "
                    "of the mirrors, or use replication.policy.class=DefaultReplicationPolicy"
                )
        return found

    def _is_selected(self, topic: str) -> bool:
        if topic.startswith(("__", ".")) or topic.endswith(
            (".internal", "-internal", f"{self.separator}internal")
        ):
            return False
        return self.topics(topic) or (self.copies_heartbeats and self._is_heartbeats(topic))

    def _is_heartbeats(self, topic: str) -> bool:
        return self.copies_heartbeats and topic.split(self.separator)[-1] == HEARTBEATS_TOPIC


@dataclass(frozen=True, slots=True)
class ReverseCopy:
    """A topic of the source with records that come from the target, over other clusters or none."""

    mirror: str
    """The mirror that writes it in the source."""
    topic: str


def check_clusters(names: MirrorNames, source_id: str, target_id: str) -> None:
    """Refuse to copy topics onto themselves.

    Raises:
        MirrorError: both are the same cluster, and names stay as they are.
    """
    if source_id == target_id and names.rule is RenameRule.IDENTITY:
        raise MirrorError(
            f"{names.source} and {names.target} are the same cluster ({source_id}), so that the mirror would "
            "copy each topic onto itself; set rename: prefix, or another target"
        )


def check_reverse(names: MirrorNames, topics: Iterable[str], reverse: Iterable[ReverseCopy]) -> None:
    """Refuse topics of the source that have records of the target.

    Args:
        names: of this mirror.
        topics: what it would copy.
        reverse: what mirrors have written in the source of records that passed the target.

    Raises:
        MirrorError: there is such a topic.
    """
    wanted = set(topics)
    for each in reverse:
        if each.topic in wanted:
            raise MirrorError(
                f"topic {each.topic} of {names.source} has records of {names.target}, which the mirror "
                f"{each.mirror} writes: records would go round in a circle; leave it out of the topics, or "
                "set rename: prefix on all mirrors of the circle"
            )


def copied_configs(configs: Mapping[str, str], excluded: re.Pattern[str] = CLUSTER_CONFIGS) -> dict[str, str]:
    """Return the settings of a topic that its copy gets."""
    return {
        name: value
        for name, value in configs.items()
        if not excluded.fullmatch(name) and not _TIMESTAMP_CONFIGS.fullmatch(name)
    }
