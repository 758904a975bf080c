"""Encodes the progress of a mirror, which it commits with the offsets of its group and reads back.

The group of a mirror has offsets of the source for the partitions of the target. The text that is committed
with each names the source, so that offsets of another cluster or of another topic of the name are not taken
for the mirror's own, and so that a mirror the other way sees what this one writes. The topic of syncs has the
same position, which stays when the offsets of the group have expired.
"""

import json
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kalda.clients.values import OffsetAndMetadata

PASSED_MAX: Final = 64
"""Clusters that are named; 64 ids are 1.6 KB of the 4 KB that ``offset.metadata.max.bytes`` allows."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The topic that a copy comes from."""

    cluster_id: str
    """Empty from brokers before 0.10.1."""
    topic_id: str
    """Empty from brokers before 2.8."""
    passed: tuple[str, ...] = ()
    """Ids of the clusters that the records passed before, if other mirrors brought them to that cluster."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a partition goes on."""

    topic_id: str
    position: int


def progress_metadata(mirror: str, topic: str, origin: Origin) -> str:
    """Return the text that is committed with an offset."""
    document: dict[str, object] = {
        "mirror": mirror,
        "source": origin.cluster_id,
        "topic": topic,
        "id": origin.topic_id,
    }
    if origin.passed:
        document["passed"] = origin.passed[:PASSED_MAX]
    return json.dumps(document, separators=(",", ":"))


def read_origin(metadata: str) -> Origin | None:
    """Return the origin that a text names; None for one that no mirror wrote."""
    try:
        document = json.loads(metadata)
        passed = tuple(map(str, document.get("passed", ())))
        return Origin(str(document["source"]), str(document.get("id", "")), passed)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where a partition goes on."""

    position: int | None
    """None if it was not copied yet."""
    is_created_again: bool = False
    """Whether the topic is another one than what was copied."""


def resumption_of(
    committed: OffsetAndMetadata | None, recorded: Progress | None, topic_id: str
) -> Resumption:
    """Decide where a partition goes on.

    Args:
        committed: what the mirror's group has.
        recorded: what the topic of syncs has; None where the mirror copies at least once, because records
            before that position may be missing.
        topic_id: of the topic in the source.
    """
    origin = None if committed is None else read_origin(committed.metadata)
    if committed is not None:
        known = Progress(origin.topic_id if origin else "", committed.offset)
    elif recorded is not None:
        known = recorded
    else:
        return Resumption(None)
    if is_other(known.topic_id, topic_id):
        return Resumption(None, is_created_again=True)
    return Resumption(known.position)


def id_text(topic_id: UUID | None) -> str:
    """Return the id of a topic as an `Origin` has it."""
    return "" if topic_id is None else str(topic_id)


def is_other(known: str, found: str) -> bool:
    """Return whether two ids are of different things; an id that is not known differs from none."""
    return bool(known and found) and known != found
