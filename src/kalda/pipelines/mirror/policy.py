"""Decides what a mirror copies: names of topics, settings, and which copies would run in a circle.

Pure decisions; the admin client is elsewhere. What a maintainer must not break: a topic that came from the
target is never copied back to it. Two mirrors would otherwise fill both clusters without an end.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

GROUP_PREFIX: Final = "kalda-mirror-"
"""The groups in the target that hold the progress of mirrors."""

SYNCS_TOPIC: Final = "__kalda_mirror_syncs"
"""The topic in the target that says which source offset became which target offset."""

CONFIGS_NOT_COPIED: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.type",
        "unclean.leader.election.enable",
        "min.insync.replicas",
    }
)
"""Settings that concern the cluster, as MirrorMaker leaves them out. The timestamps of a copy are those of
the original, so the target must neither replace nor refuse them."""


class MirrorError(ValueError):
    """A mirror cannot do what it was asked for; the message says what to change."""


class RenameRule(Enum):
    """What a copy is called in the target."""

    IDENTITY = "identity"
    PREFIX = "prefix"


@dataclass(frozen=True, slots=True)
class MirrorNames:
    """The names of topics on both sides.

    Args:
        source: the name of the source cluster, which the prefix uses.
        target: the name of the target cluster.
        pattern: what the whole name of a topic must match.
    """

    source: str
    target: str
    pattern: re.Pattern[str]
    rule: RenameRule = RenameRule.IDENTITY

    def target_topic(self, topic: str) -> str:
        """Return the name of a topic's copy."""
        return topic if self.rule is RenameRule.IDENTITY else f"{self.source}.{topic}"

    def is_from_target(self, topic: str) -> bool:
        """Return whether the name says that the topic is a copy of one in the target, or of a copy here."""
        return self.rule is RenameRule.PREFIX and topic.startswith((f"{self.target}.", f"{self.source}."))

    def selected(self, topics: Iterable[str]) -> list[str]:
        """Return the topics to copy, sorted: they match, are not internal and are no copies."""
        return sorted(
            each
            for each in topics
            if not each.startswith("__") and self.pattern.fullmatch(each) and not self.is_from_target(each)
        )


@dataclass(frozen=True, slots=True)
class ReverseCopy:
    """A topic that a mirror running the other way writes."""

    mirror: str
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
    """Refuse topics that a mirror of the target writes in the source.

    Args:
        names: of this mirror.
        topics: what it would copy.
        reverse: what mirrors with the target as their source have written in the source.

    Raises:
        MirrorError: there is such a topic.
    """
    wanted = set(topics)
    for each in reverse:
        if each.topic in wanted:
            raise MirrorError(
                f"topic {each.topic} of {names.source} is written by the mirror {each.mirror} from "
                f"{names.target}: records would go round in a circle; leave it out of the topics, or set "
                "rename: prefix on both mirrors"
            )


def copied_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a topic that its copy gets."""
    return {name: value for name, value in configs.items() if name not in CONFIGS_NOT_COPIED}
