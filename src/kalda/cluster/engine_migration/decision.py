"""Decides from the state of both engines which one is right and what a migration does next. Sans-IO.

A migration keeps nothing in memory but whether it has compared the copy: a run that was ended at any point is
continued by another one.
"""

from dataclasses import dataclass
from enum import Enum, auto

from kalda.cluster.engine_migration.marker import Marker, Phase


class MigrationError(Exception):
    """The migration cannot begin or go on; the message says why, and what to do."""


class Goal(Enum):
    """The goal of a run."""

    COPY = auto()
    """Copy ahead; the source goes on."""
    FORWARD = auto()
    BACK = auto()
    """Return to the source, as long as the target is not in use."""


class Step(Enum):
    """One step; each is one conditional write, or can be repeated."""

    CLAIM_TARGET = "close the target for brokers"
    CLOSE_SOURCE = "close the source for brokers"
    COPY = "copy what differs, then read both engines and compare"
    SWITCH = "name the target as the right engine"
    OPEN_TARGET = "open the target for brokers"
    OPEN_SOURCE = "open the source for brokers"
    CLEAR_TARGET = "delete the copy"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The state of one engine."""

    address: str
    marker: Marker | None
    marker_version: int
    cluster_id: str | None
    """The content of ``/cluster/id``, None if there is none."""
    brokers: tuple[int, ...]
    """The brokers that are registered."""
    has_controller: bool
    has_cluster: bool
    """Whether anything of a cluster is there."""

    @property
    def phase(self) -> Phase | None:
        """The phase of the marker."""
        return None if self.marker is None else self.marker.phase

    @property
    def is_open(self) -> bool:
        """Whether brokers may start."""
        return self.phase in (None, Phase.ARRIVED)


@dataclass(frozen=True, slots=True)
class Right:
    """The engine whose data is valid."""

    address: str | None
    """None if neither of the two is."""
    state: str
    next: str


def right_engine(source: Side, target: Side) -> Right:
    """Return which engine a cluster's brokers must use, in whatever order the two are given."""
    both = ((source, target), (target, source))
    for one, _ in both:
        if one.marker is not None and one.phase is Phase.LEAVING:
            return Right(
                one.address,
                f"moving to {one.marker.target}; no broker can start anywhere",
                "`kalda coordination migrate` finishes it, `kalda coordination back` ends it",
            )
    for one, other in both:
        if one.phase is Phase.LEFT:
            assert one.marker is not None
            if other.marker is None or other.marker.migration != one.marker.migration:
                if other.phase in (Phase.LEFT, Phase.LEAVING):
                    continue
                return Right(
                    None,
                    f"moved from {one.address} to {one.marker.target}",
                    "ask for the status of these two",
                )
            if other.phase is Phase.ARRIVING:
                return Right(
                    other.address,
                    "moved and verified; brokers cannot start yet",
                    "`kalda coordination migrate` finishes it",
                )
            return Right(
                other.address, "moved", "start brokers there; `kalda coordination back` moves it back"
            )
    for one, other in both:
        if other.phase is Phase.ARRIVING:
            return Right(
                one.address if one.has_cluster else None,
                f"{other.address} has a copy that is not in use",
                "`kalda coordination migrate` brings it up to date and switches to it, "
                "`kalda coordination back` deletes it",
            )
    if source.has_cluster and target.has_cluster:
        return Right(None, "two clusters, each in use", "nothing was migrated between them")
    one = source if source.has_cluster else target
    if not one.has_cluster:
        return Right(None, "neither engine has a cluster", "")
    return Right(one.address, "in use; nothing is being moved", "")


def next_step(source: Side, target: Side, goal: Goal, *, is_copied: bool) -> Step:
    """Return the next step; `is_copied`: this run has copied, and compared if the source is closed.

    Raises:
        MigrationError: something stands in the way.
    """
    phase = source.phase
    if phase is Phase.ARRIVING:
        raise MigrationError(
            f"{source.address} has an incomplete copy of {_origin(source)}; it is no source of a migration"
        )
    if phase is Phase.LEFT:
        return _behind_switch(source, target, goal)
    if goal is Goal.BACK:
        return _back(source, target)
    if phase is not Phase.LEAVING:
        _require_source(source)
        _require_target(source, target)
        if goal is Goal.COPY:
            if target.phase is not Phase.ARRIVING:
                return Step.CLAIM_TARGET
            return Step.DONE if is_copied else Step.COPY
        _require_stopped(source)
        return Step.CLOSE_SOURCE
    if goal is Goal.COPY:
        raise MigrationError(f"{source.address} is closed already; go on with `kalda coordination migrate`")
    _require_stopped(source)
    if not _is_pair(source, target):
        _require_target(source, target)
        return Step.CLAIM_TARGET
    return Step.SWITCH if is_copied else Step.COPY


def migration_of(source: Side, target: Side) -> str | None:
    """Return the id that a migration of `source` continues: that of a copy made ahead, or None."""
    for side in (source, target):
        if side.marker is not None and side.phase in (Phase.LEAVING, Phase.ARRIVING):
            return side.marker.migration
    return None


def real_cluster_id(source: Side) -> str:
    """Return the cluster's id, which a closed engine has in its marker only."""
    if source.marker is not None:
        return source.marker.cluster_id
    assert source.cluster_id is not None, f"{source.address} has no cluster"
    return source.cluster_id


def _behind_switch(source: Side, target: Side, goal: Goal) -> Step:
    assert source.marker is not None
    if target.marker is not None and target.phase is Phase.LEAVING:
        raise MigrationError(
            f"{target.address} is being moved to {target.marker.target}: finish that, or "
            "end it with `kalda coordination back`"
        )
    if target.marker is None or target.marker.migration != source.marker.migration:
        raise MigrationError(
            f"the cluster of {source.address} has moved to {source.marker.target}, not to {target.address}"
        )
    if goal is Goal.COPY:
        raise MigrationError(f"the cluster of {source.address} has moved to {target.address} already")
    return Step.OPEN_TARGET if target.phase is Phase.ARRIVING else Step.DONE


def _back(source: Side, target: Side) -> Step:
    if source.phase is Phase.LEAVING:
        return Step.OPEN_SOURCE
    if target.phase is Phase.ARRIVING and source.has_cluster:
        _require_own_copy(source, target)
        return Step.CLEAR_TARGET
    return Step.DONE


def _is_pair(source: Side, target: Side) -> bool:
    return (
        source.marker is not None
        and target.marker is not None
        and target.phase is Phase.ARRIVING
        and source.marker.migration == target.marker.migration
    )


def _require_source(source: Side) -> None:
    if source.cluster_id is None:
        raise MigrationError(f"{source.address} has no cluster (/cluster/id is missing)")


def _require_target(source: Side, target: Side) -> None:
    if target.brokers:
        raise MigrationError(f"brokers {_numbers(target.brokers)} are registered at {target.address}")
    if target.marker is None:
        if target.has_cluster:
            raise MigrationError(
                f"{target.address} has a cluster already ({target.cluster_id or 'without an id'}): use an "
                "empty prefix, chroot or directory"
            )
        return
    if target.marker.cluster_id != real_cluster_id(source):
        raise MigrationError(
            f"{target.address} belongs to another cluster, {target.marker.cluster_id}: use an empty prefix, "
            "chroot or directory"
        )
    if target.phase is Phase.ARRIVING and target.marker.source != source.address:
        raise MigrationError(
            f"{target.address} has a copy of {target.marker.source}, not of {source.address}: write the "
            "address as then, or delete the copy with `kalda coordination back`"
        )
    if target.phase is Phase.ARRIVED:
        raise MigrationError(
            f"{target.address} is in use by this cluster, which moved there from {target.marker.source}"
        )
    if target.phase is Phase.LEAVING:
        raise MigrationError(
            f"{target.address} is being moved to {target.marker.target}; end that with "
            "`kalda coordination back`"
        )


def _require_own_copy(source: Side, target: Side) -> None:
    assert target.marker is not None
    if target.marker.cluster_id != real_cluster_id(source):
        raise MigrationError(
            f"{target.address} has a copy of another cluster, {target.marker.cluster_id} of "
            f"{target.marker.source}; it is left alone"
        )


def _require_stopped(source: Side) -> None:
    if source.brokers:
        raise MigrationError(
            f"brokers {_numbers(source.brokers)} are registered at {source.address}: stop them; a killed "
            "broker's registration ends with its session (`zookeeper.session.timeout.ms`)"
        )
    if source.has_controller:
        raise MigrationError(
            f"{source.address} has a controller: stop all brokers; that of a killed one ends with its session"
        )


def _origin(side: Side) -> str:
    assert side.marker is not None
    return side.marker.source


def _numbers(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))
