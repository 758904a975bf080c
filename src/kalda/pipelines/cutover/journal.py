"""Holds what a cut-over has decided and done, and keeps it in a file that survives the end of the process.

Each step is recorded before the next one begins, and what a step is about to change in a cluster before it
changes it. A process that takes over repeats the step that was under way; steps can be repeated.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

from kalda.clients.admin.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.clients.admin.quotas import QuotaEntity, quota_entity
from kalda.common.types import TopicPartition
from kalda.runtime.system.filesystem import OsFileSystem

_VERSION: Final = 1


class JournalError(ValueError):
    """A journal cannot be read, or is that of another cut-over."""


class Phase(StrEnum):
    """What a cut-over does next, or where it ended."""

    CHECK = "check"
    """Names, topics, clusters: whether the cut-over can be made."""
    PREPARE = "prepare"
    """Settings that would change copies are taken out of the target; accounts and rights are carried."""
    FOLLOW = "follow"
    """The mirror copies until it is close behind, and what is there is compared."""
    PLAN_FENCE = "plan fence"
    """Decides what keeps writers from the source."""
    FENCE = "fence"
    """Keeps them away, until the ends of all partitions stand still."""
    DRAIN = "drain"
    """Copies the rest, and waits for the ends of open transactions."""
    GROUPS = "groups"
    """Commits the offsets of groups in the target."""
    VERIFY = "verify"
    """Compares the rest of the records, the offsets of groups, and whether the source is still as it was."""
    SETTLE = "settle"
    """Gives the target what writers need: settings of timestamps; on the way back, no fence."""
    SWITCHED = "switched"
    """The end: clients go to the target."""
    RELEASE = "release"
    """Lets writers go on in the source."""
    ABORTED = "aborted"
    """The end of one that was given up; the next start begins again."""


class FenceMethod(StrEnum):
    """How writers are kept from a cluster."""

    ACL = "acl"
    """ACLs that deny Write; super users are not held."""
    QUOTA = "quota"
    """Quotas of one byte per second; the first request of each connection is not held."""


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """A quota that a fence sets."""

    entity: QuotaEntity
    before: float | None
    """The value that the cluster had; None for none."""
    value: float


@dataclass(frozen=True, slots=True)
class Fence:
    """What a cut-over adds to a cluster to keep writers away."""

    acls: tuple[AclBinding, ...] = ()
    quotas: tuple[QuotaChange, ...] = ()

    def __or__(self, other: "Fence") -> "Fence":
        return Fence(self.acls + other.acls, self.quotas + other.quotas)


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a partition changes over; all records before it are in both clusters."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class NotCarried:
    """Something that the target does not have."""

    kind: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """Where a group goes on in one partition."""

    group: str
    partition: TopicPartition
    source: int
    """The offset that it had committed in the source."""
    target: int
    how: str
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The state of one cut-over."""

    flow: str
    source_id: str
    """The id of the cluster that clients leave."""
    target_id: str
    is_back: bool = False
    phase: Phase = Phase.CHECK
    methods: tuple[FenceMethod, ...] = ()
    """Ways to fence that were not tried yet."""
    fence: Fence = Fence()
    former_fence: Fence = Fence()
    """On the way back: what still keeps writers from the target."""
    fenced_ms: int | None = None
    """When the fence was put up, since the epoch."""
    open_ms: int | None = None
    """When the cut-over ended, or writers were let go."""
    rounds: int = 0
    """How often records arrived behind a cut."""
    cuts: Mapping[TopicPartition, Cut] = field(default_factory=dict)
    compared: Mapping[TopicPartition, Cut] = field(default_factory=dict)
    """Up to where records were compared."""
    places: tuple[GroupPlace, ...] = ()
    records: int = 0
    """Records that were compared on both sides."""
    carried: Mapping[str, int] = field(default_factory=dict)
    not_carried: tuple[NotCarried, ...] = ()
    reason: str = ""
    """Why it was given up."""

    @property
    def is_fenced(self) -> bool:
        """Whether writers may be kept from the source."""
        return self.phase in FENCED

    @property
    def pause_ms(self) -> int | None:
        """For how long writers were kept away; None while they are, or if they never were."""
        if self.fenced_ms is None or self.open_ms is None:
            return None
        return self.open_ms - self.fenced_ms

    def without(self, kinds: Sequence[str]) -> Self:
        """Return this without what some kinds of things could not be carried, before they are tried again."""
        return replace(self, not_carried=tuple(each for each in self.not_carried if each.kind not in kinds))


FENCED: Final = frozenset({Phase.FENCE, Phase.DRAIN, Phase.GROUPS, Phase.VERIFY, Phase.SETTLE, Phase.RELEASE})


class JournalFile:
    """The file of a journal."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._files: Final = OsFileSystem(is_private=True)

    def read(self) -> Journal | None:
        """Return what is there; None if there is no file.

        Raises:
            JournalError: it cannot be read as a journal.
            OSError: it cannot be read.
        """
        if not self._files.exists(str(self.path)):
            return None
        try:
            return _from_document(json.loads(self._files.read(str(self.path))))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise JournalError(
                f"{self.path} is no journal of a cut-over ({error}); name another file with --journal"
            ) from error

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Return a block in which no other process runs a cut-over with this journal.

        Raises:
            JournalError: another one does.
            OSError: the lock cannot be taken.
        """
        found = self._files.lock(f"{self.path}.lock")
        if isinstance(found, int):
            raise JournalError(f"process {found} runs a cut-over with {self.path} already")
        try:
            yield
        finally:
            found.release()

    def write(self, journal: Journal) -> None:
        """Replace the content; it is on the disk on return.

        Raises:
            OSError: it cannot be written.
        """
        text = json.dumps(_to_document(journal), indent=1, ensure_ascii=False)
        self._files.replace(str(self.path), text.encode(), sync=True)


def _to_document(journal: Journal) -> dict[str, object]:
    return {
        "version": _VERSION,
        "flow": journal.flow,
        "source": journal.source_id,
        "target": journal.target_id,
        "back": journal.is_back,
        "phase": journal.phase.value,
        "methods": [each.value for each in journal.methods],
        "fence": _fence_document(journal.fence),
        "former_fence": _fence_document(journal.former_fence),
        "fenced_ms": journal.fenced_ms,
        "open_ms": journal.open_ms,
        "rounds": journal.rounds,
        "cuts": _cuts_rows(journal.cuts),
        "compared": _cuts_rows(journal.compared),
        "places": [
            [
                each.group,
                each.partition.topic,
                each.partition.partition,
                each.source,
                each.target,
                each.how,
                each.metadata,
            ]
            for each in journal.places
        ],
        "records": journal.records,
        "carried": dict(journal.carried),
        "not_carried": [[each.kind, each.name, each.reason] for each in journal.not_carried],
        "reason": journal.reason,
    }


def _from_document(document: Mapping[str, object]) -> Journal:
    if document["version"] != _VERSION:
        raise ValueError(f"version {document['version']!r} is not {_VERSION}")
    found = _Fields(document)
    return Journal(
        flow=str(document["flow"]),
        source_id=str(document["source"]),
        target_id=str(document["target"]),
        is_back=bool(document["back"]),
        phase=Phase(str(document["phase"])),
        methods=tuple(FenceMethod(str(each)) for each in found.rows("methods")),
        fence=_read_fence(found.inner("fence")),
        former_fence=_read_fence(found.inner("former_fence")),
        fenced_ms=found.time("fenced_ms"),
        open_ms=found.time("open_ms"),
        rounds=found.number("rounds"),
        cuts=_read_cuts(found.rows("cuts")),
        compared=_read_cuts(found.rows("compared")),
        places=tuple(
            GroupPlace(
                str(group),
                TopicPartition(str(topic), int(number)),
                int(source),
                int(target),
                str(how),
                str(metadata),
            )
            for group, topic, number, source, target, how, metadata in found.rows("places")
        ),
        records=found.number("records"),
        carried={str(name): int(count) for name, count in found.inner("carried").items()},
        not_carried=tuple(NotCarried(*map(str, each)) for each in found.rows("not_carried")),
        reason=str(document["reason"]),
    )


class _Fields:
    """The members of a document, with the types that a journal has."""

    def __init__(self, document: Mapping[str, object]) -> None:
        self._document: Final = document

    def number(self, name: str) -> int:
        value = self._document[name]
        if not isinstance(value, int):
            raise TypeError(f"{name} is {value!r} and no number")
        return value

    def time(self, name: str) -> int | None:
        return None if self._document[name] is None else self.number(name)

    def rows(self, name: str) -> list[Any]:
        value = self._document[name]
        if not isinstance(value, list):
            raise TypeError(f"{name} is {value!r} and no list")
        return value

    def inner(self, name: str) -> Mapping[str, Any]:
        value = self._document[name]
        if not isinstance(value, dict):
            raise TypeError(f"{name} is {value!r} and no object")
        return value


def _cuts_rows(cuts: Mapping[TopicPartition, Cut]) -> list[list[object]]:
    return [[each.topic, each.partition, cut.source, cut.target] for each, cut in cuts.items()]


def _read_cuts(rows: list[Any]) -> dict[TopicPartition, Cut]:
    return {
        TopicPartition(str(topic), int(number)): Cut(int(source), int(target))
        for topic, number, source, target in rows
    }


def _fence_document(fence: Fence) -> dict[str, object]:
    return {
        "acls": [
            [
                each.pattern.resource_type.title,
                each.pattern.name,
                each.pattern.pattern_type.title,
                each.entry.principal,
                each.entry.host,
                each.entry.operation.title,
                each.entry.permission.title,
            ]
            for each in fence.acls
        ],
        "quotas": [[dict(each.entity), each.before, each.value] for each in fence.quotas],
    }


def _read_fence(document: Mapping[str, object]) -> Fence:
    found = _Fields(document)
    return Fence(
        tuple(
            AclBinding(
                ResourcePattern(ResourceType.of_title(kind), name, PatternType.of_title(pattern)),
                AccessControlEntry(
                    principal, host, AclOperation.of_title(operation), PermissionType.of_title(permission)
                ),
            )
            for kind, name, pattern, principal, host, operation, permission in found.rows("acls")
        ),
        tuple(
            QuotaChange(
                quota_entity(dict(entity)),
                None if before is None else float(before),
                float(value),
            )
            for entity, before, value in found.rows("quotas")
        ),
    )
