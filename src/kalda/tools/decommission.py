"""Moves all replicas off a broker, for `kalda cluster decommission`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kalda.command.command import Tool
from kalda.command.errors import ToolError
from kalda.tools.reassign import (
    clear_throttles,
    read_current,
    read_ongoing,
    running_brokers,
    set_throttles,
    wait_for_moves,
)
from kalda.tools.reassignment_plan import (
    Assignment,
    OngoingReassignment,
    ReassignmentFile,
    Throttles,
    moves,
    throttles,
)
from kalda.tools.replica_balance import drain

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.common.types import TopicPartition

_ROUNDS_MAX: Final = 10
"""Topics that are created meanwhile may have replicas on the broker. More rounds mean that a program puts
them there."""


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """What is to be moved off a broker."""

    current: Assignment
    """The replicas of the partitions that change."""
    changed: Assignment
    """Their replicas without the broker."""
    resumed: Assignment
    """Partitions that an earlier plan already moves off the broker, with the replicas that they will have."""
    ongoing: "dict[TopicPartition, OngoingReassignment]"
    live: Sequence[int]
    """The brokers that run."""

    def check_broker(self, broker_id: int) -> None:
        """Check that the cluster has the broker or a replica on it.

        Raises:
            ToolError: it has neither.
        """
        if broker_id not in self.live and not self.changed and not self.resumed:
            raise ToolError(
                f"the cluster has no broker {broker_id} and no replica on it; its brokers are "
                f"{', '.join(map(str, self.live))}"
            )


async def plan_drain(admin: "AsyncAdmin", broker_id: int) -> DrainPlan:
    """Decide where the replicas of a broker go.

    Raises:
        ClientError: the cluster cannot be read.
        ToolError: too few brokers remain.
    """
    racks = await running_brokers(admin)
    current = await read_current(admin, await admin.list_topics(include_internal=True))
    ongoing = await read_ongoing(admin, None)
    # A partition on its way to other replicas is judged by these.
    wanted = current | {
        each: tuple(replica for replica in move.replicas if replica not in move.removing)
        for each, move in ongoing.items()
        if each in current
    }
    affected = {each: replicas for each, replicas in wanted.items() if broker_id in replicas}
    drained = drain(wanted, {each: rack for each, rack in racks.items() if each != broker_id}, broker_id)
    return DrainPlan(
        current={each: current[each] for each in affected},
        changed={each: drained[each] for each in affected},
        resumed={
            each: wanted[each]
            for each, move in ongoing.items()
            if broker_id in move.removing and each in wanted and each not in affected
        },
        ongoing=ongoing,
        live=sorted(racks),
    )


async def carry_out(
    tool: Tool, admin: "AsyncAdmin", broker_id: int, plan: DrainPlan, *, rate: int | None
) -> Assignment:
    """Carry out a plan and wait until the broker has no replica; return the partitions that were moved.

    Args:
        rate: at most this many bytes a second between brokers; None is no limit.

    Raises:
        ClientError: the cluster refused a move.
        ToolError: a move ended elsewhere, or new replicas appeared on the broker all the time.
    """
    moved: Assignment = {}
    for _ in range(_ROUNDS_MAX):
        file = ReassignmentFile(plan.changed | plan.resumed)
        if not file.assignment:
            return moved
        bounded = throttles(moves(plan.ongoing, plan.changed, plan.current), [], rate=rate, log_dir_rate=None)
        # A broker that is down cannot be configured, and sends nothing.
        await set_throttles(
            admin,
            Throttles(
                bounded.topics, {each: bounded.brokers[each] for each in plan.live if each in bounded.brokers}
            ),
        )
        await admin.alter_partition_reassignments(plan.changed)
        await wait_for_moves(tool, admin, file)
        await clear_throttles(admin, file)
        moved |= file.assignment
        plan = await plan_drain(admin, broker_id)
    raise ToolError(
        f"broker {broker_id} got new replicas {_ROUNDS_MAX} times while it was emptied; find out which "
        "program creates topics or moves partitions there, and repeat the command"
    )
