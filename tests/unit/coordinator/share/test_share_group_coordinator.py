"""What the group coordinator of share groups repeats when the share coordinator cannot be reached."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.share.share_group_coordinator import ShareGroupCoordinator
from kalda.coordinator.group.share.share_protocol import CREATION_EPOCH, Heartbeat, NewState
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.coordinator.share.delivery_state import START_UNKNOWN
from kalda.coordinator.share.share_records import SharePartitionKey
from kalda.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

TOPIC_ID = UUID(int=7)
KEYS = [SharePartitionKey("g", TOPIC_ID, number) for number in range(3)]


class Coordinators:
    """A group coordinator with one group, and the share coordinator, which fails for some partitions."""

    def __init__(self) -> None:
        self.failing: set[int] = set()
        self.asked: list[int] = []
        self.noted: list[list[UUID]] = []
        self.refusal = ErrorCode.FENCED_STATE_EPOCH
        self.created: list[SharePartitionKey] = []
        states: Any = SimpleNamespace(delete=self._delete, initialize=self._refuse)
        run: Any = self._run
        self.groups = ShareGroupCoordinator(run, states, lambda: True)

    def _run(self, group_id: str, operation: Callable[[Any], Result[Any]]) -> Pending[Any]:
        return Pending.of(operation(self).response)

    def begin_delete(
        self, group_id: str, topic_ids: object, *, must_be_empty: bool, author: object
    ) -> Result[list[SharePartitionKey]]:
        return Result((), KEYS)

    def end_delete(self, group_id: str, topic_ids: list[UUID]) -> Result[None]:
        self.noted.append(topic_ids)
        return Result((), None)

    def heartbeat(self, *arguments: object) -> Result[Heartbeat]:
        asked = [NewState(KEYS[0], 2, START_UNKNOWN), NewState(KEYS[1], CREATION_EPOCH, 0)]
        return Result((), Heartbeat(ShareGroupHeartbeatResponse(), tuple(asked)))

    def initialized(self, group_id: str, keys: list[SharePartitionKey]) -> Result[None]:
        self.created += keys
        return Result((), None)

    def not_initialized(self, group_id: str) -> None:
        """Nothing is asked again here."""

    def _refuse(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Pending[None]:
        done: Pending[None] = Pending()
        done.fail(ApiError(self.refusal))
        return done

    def _delete(self, key: SharePartitionKey) -> Pending[None]:
        self.asked.append(key.partition)
        done: Pending[None] = Pending()
        if key.partition in self.failing:
            done.fail(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            done.complete(None)
        return done

    def delete_topic(self) -> None:
        stored = SimpleNamespace(initialized={TOPIC_ID: None}, initializing={})
        group: Any = SimpleNamespace(group_id="g", stored=stored)
        self.groups.on_topics_deleted([group], [TOPIC_ID])


def test_state_of_a_deleted_topic_is_deleted_later_if_it_could_not_be() -> None:
    """Nothing else names the topic any more, so its state would stay for ever."""
    found = Coordinators()
    found.failing = {1, 2}
    found.delete_topic()
    found.failing = {2}
    found.groups.retry_deletions()
    assert ([0, 1, 2, 1, 2], [[], []]) == (found.asked, found.noted)
    found.failing = set()
    found.groups.retry_deletions()
    assert [[], [], [TOPIC_ID]] == found.noted
    found.groups.retry_deletions()
    assert [0, 1, 2, 1, 2, 2] == found.asked


def test_the_deletion_of_a_group_that_fails_is_left_to_the_client() -> None:
    found = Coordinators()
    found.failing = {0}
    assert found.groups.delete_state("g").error is not None
    found.groups.retry_deletions()
    assert [0, 1, 2] == found.asked


def test_a_partition_that_was_added_to_a_topic_has_state_if_its_creation_is_fenced() -> None:
    """It was created before, and the answer was lost: creation has the lowest epoch, and resets nothing."""
    found = Coordinators()
    found.groups.heartbeat(ShareGroupHeartbeatRequest(group_id="g"), "", "")
    assert [KEYS[1]] == found.created
    found.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    found.groups.heartbeat(ShareGroupHeartbeatRequest(group_id="g"), "", "")
    assert [KEYS[1]] == found.created
