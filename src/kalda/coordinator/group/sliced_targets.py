"""Computes the target assignments of large groups in slices, between which the event loop does other work.

Heartbeats do not wait for it: until the new target is written, the last one stays, as it does until the
assignment interval of the group has passed (KIP-1263). The target is that of the members and subscriptions
with which the computation began. Whatever changes meanwhile has a newer group epoch, so that the next
heartbeat begins another computation; of members that are gone by then nothing is written.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from kalda.common.errors import ApiError
from kalda.common.pending import Pending
from kalda.common.steps import Steps
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.group_shard_state import GroupShardState
from kalda.coordinator.runtime.coordinator_shard import Result

logger: Final = logging.getLogger(__name__)

_SLICE_PAUSE_MS: Final = 1
_SLICE_MS: Final = 5
"""How long one slice may hold the event loop, give or take one step."""


class AssignedGroup(Protocol):
    """A group with members and a target assignment."""

    @property
    def epoch(self) -> int:
        """The group epoch."""
        ...

    @property
    def assignment_epoch(self) -> int:
        """The group epoch of the target assignment."""
        ...


class _Computation:
    """A target that is being computed for an epoch."""

    __slots__ = ("epoch", "group", "steps")

    def __init__(self, group: AssignedGroup, steps: Steps[list[CoordinatorRecord]]) -> None:
        self.group: Final = group
        self.epoch: Final = group.epoch
        self.steps: Final = steps


class SlicedTargets:
    """The computations of the groups of one kind in one shard, one of each group at most."""

    def __init__(
        self,
        kind: str,
        shard: GroupShardState,
        find: Callable[[str], AssignedGroup | None],
        steps: Callable[[str], Steps[list[CoordinatorRecord]]],
    ) -> None:
        """`find` returns a group of the kind.

        `steps` begins a computation; its result are the records of the target, for the members that the group
        has after the last step.
        """
        self._kind: Final = kind
        self._shard: Final = shard
        self._find: Final = find
        self._steps: Final = steps
        self._under_way: Final[dict[str, _Computation | None]] = {}
        """None where the first slice has not begun."""

    def clear(self) -> None:
        """Drop all computations: the shard is unloaded."""
        self._under_way.clear()

    def start(self, group_id: str) -> None:
        """Begin behind the running operation, unless a computation of the group is under way."""
        if group_id not in self._under_way:
            self._under_way[group_id] = None
            first = self._shard.context.write(partial(self._slice, group_id))
            first.add_done(partial(self._on_first_slice, group_id))

    def _on_first_slice(self, group_id: str, done: Pending[None]) -> None:
        """Log an unexpected error; after each error, a heartbeat begins again."""
        if done.error is not None:
            self._under_way.pop(group_id, None)
            if not isinstance(done.error, ApiError):
                logger.error("group %s: no target could be computed", group_id, exc_info=done.error)

    def _slice(self, group_id: str) -> Result[None]:
        group = self._find(group_id)
        if group is None or group.epoch <= group.assignment_epoch:
            self._under_way.pop(group_id, None)
            return Result((), None)
        present = self._under_way.get(group_id)
        if present is not None and (present.group is not group or present.epoch <= group.assignment_epoch):
            # The group was deleted and is there again, or a heartbeat has computed a target, of few members.
            present = None
        if present is None:
            present = self._under_way[group_id] = _Computation(group, self._steps(group_id))
        context = self._shard.context
        end = context.monotonic_ms() + _SLICE_MS
        try:
            while True:
                next(present.steps)
                if context.monotonic_ms() >= end:
                    break
        except StopIteration as done:
            del self._under_way[group_id]
            return Result(done.value, None)
        except BaseException:
            del self._under_way[group_id]
            raise
        key = f"{self._kind}-target/{group_id}"
        context.schedule(key, _SLICE_PAUSE_MS, partial(self._slice, group_id))
        return Result((), None)
