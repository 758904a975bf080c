"""Defines the options of a cut-over, and derives the replication flows that it runs in both directions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kalda.pipelines.cutover import fence as fences
from kalda.pipelines.cutover.clusters import RUNS_MAX, with_short_waits
from kalda.pipelines.cutover.journal import FenceMethod, Journal, Phase
from kalda.pipelines.mirror.delivery import DeliveryMode
from kalda.pipelines.mirror.mirror import MirrorOptions
from kalda.pipelines.mirror.policy import MirrorError, RenameRule


class CutoverError(MirrorError):
    """A cut-over cannot be made; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverOptions:
    """What a cut-over does.

    Args:
        mirror: the flow from the cluster that clients leave, as `forward` or `backward` returns it.
        method: how writers are held; None takes ACLs, and quotas where that does not hold them.
        pause_max_s: for how long writers are held before they are let go again.
        release_max_s: for how long a cluster that is away is asked to let writers go, before the operator has
            to do it.
        step_s: how long each quota that is not the last one is in force.
        still_s: for how long the ends of all partitions stand still before writers count as held.
        lag_max: how many offsets may be left to copy when writers are held.
        compares_records: whether all records are compared, or only where groups stand.
        passwords: of users whose SCRAM credentials are set in the target.
        former: on the way back, the journal of the way there.
    """

    mirror: MirrorOptions
    method: FenceMethod | None = None
    pause_max_s: float = 60.0
    release_max_s: float = 30.0
    step_s: float = fences.STEP_S
    still_s: float = 1.0
    lag_max: int = 10_000
    compares_records: bool = True
    passwords: Mapping[str, str] = field(default_factory=dict)
    former: Journal | None = None


def forward(options: MirrorOptions) -> MirrorOptions:
    """Return a flow as a cut-over runs it.

    Raises:
        CutoverError: its copies have other names than their originals.
    """
    names = options.names
    if names.rule is not RenameRule.IDENTITY:
        raise CutoverError(
            f"the copies of {options.name} have other names than their originals, so clients cannot move to "
            "them; set replication.policy.class=IdentityReplicationPolicy"
        )
    return replace(
        options,
        source=with_short_waits(options.source),
        target=with_short_waits(options.target),
        names=replace(names, copies_heartbeats=False),
        sync_groups=False,
        sync_acls=False,
        checkpoints=None,
        delivery=DeliveryMode.EXACTLY_ONCE,
        runs_kept_max=RUNS_MAX,
    )


def backward(options: MirrorOptions, journal: Journal) -> MirrorOptions:
    """Return the flow in the other direction that begins at a cut.

    Raises:
        CutoverError: the cut-over of the journal has not ended.
    """
    if journal.phase is not Phase.SWITCHED:
        raise CutoverError(
            f"there is no way back: {journal.flow} was not cut over, its journal is at `{journal.phase}`"
        )
    there = forward(options)
    names = there.names
    return replace(
        there,
        name=f"{names.target}->{names.source}",
        source=there.target,
        target=there.source,
        names=replace(names, source=names.target, target=names.source, circles=()),
        start="earliest",
        begins={each: cut.target for each, cut in journal.cuts.items()},
        returns=there.name,
    )
