"""The share groups of one broker, which request handlers call.

It runs requests on the shard of their group, has the state of share partitions created and deleted at their
share coordinators, and turns errors into responses.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending, gather
from kalda.common.types import UUID
from kalda.coordinator.group.offset_events import GetAuthor
from kalda.coordinator.group.share.share_group import ShareGroup
from kalda.coordinator.group.share.share_protocol import CREATION_EPOCH, Heartbeat, NewState, ShareProtocol
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.coordinator.share.delivery_state import PartitionState
from kalda.coordinator.share.share_records import SharePartitionKey
from kalda.protocol.messages.share_group_describe import DescribedGroup
from kalda.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")


class ShareOperations(Protocol):
    """Runs operations on the shards of share groups."""

    def __call__(self, group_id: str, operation: Callable[[ShareProtocol], Result[T]], /) -> Pending[T]:
        """Run an operation in the shard of a group; its error has a code for the client."""
        ...


class ShareStates(Protocol):
    """The state of share partitions at their share coordinators, wherever these are.

    Operations fail with ApiError when they were tried for a while.
    """

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Pending[None]:
        """Create state."""
        ...

    def summary(self, key: SharePartitionKey) -> Pending[PartitionState | None]:
        """Return state without its ranges, None if there is none."""
        ...

    def delete(self, key: SharePartitionKey) -> Pending[None]:
        """Delete state."""
        ...


class StartOffset(NamedTuple):
    """Where a share partition begins; -1 in a field stands for unknown."""

    partition: int
    start_offset: int = -1
    leader_epoch: int = -1
    complete_count: int = -1
    error: ApiError | None = None


_UNDELETED_MAX: Final = 20_000
"""Share partitions whose deletion is tried again: some megabytes."""


class ShareGroupCoordinator:
    """The share groups that this broker coordinates."""

    def __init__(self, run: ShareOperations, states: ShareStates, is_enabled: Callable[[], bool]) -> None:
        """`is_enabled` returns whether ``share.version`` is in force; each request calls it."""
        self._run: Final = run
        self._states: Final = states
        self.is_enabled: Final = is_enabled
        self._undeleted: Final[dict[str, set[SharePartitionKey]]] = {}
        """State of deleted topics by group that could not be deleted; it is tried again."""

    # Members.

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, client_id: str, client_host: str
    ) -> Pending[ShareGroupHeartbeatResponse]:
        """Decide a heartbeat; the response comes when its records are replicated."""
        if not self.is_enabled():
            return Pending.of(_refused(ApiError(ErrorCode.UNSUPPORTED_VERSION)))

        def answer(done: Pending[Heartbeat]) -> ShareGroupHeartbeatResponse:
            if isinstance(done.error, ApiError):
                return _refused(done.error)
            if done.value.new_states:
                self._initialize(request.group_id, done.value.new_states)
            return done.value.response

        beat = self._run(
            request.group_id, lambda protocol: protocol.heartbeat(request, client_id, client_host)
        )
        return beat.then(answer)

    def _initialize(self, group_id: str, states: Sequence[NewState]) -> Pending[list[ApiError | None]]:
        """Create states at the share coordinators and record the outcome; completes when it is recorded."""
        created = [self._states.initialize(*each) for each in states]
        outcome: Pending[list[ApiError | None]] = Pending()

        def combine(done: list[Pending[None]]) -> list[ApiError | None]:
            return [_creation_error(state, each) for state, each in zip(states, done, strict=True)]

        def note(gathered: Pending[list[ApiError | None]]) -> None:
            errors = gathered.value
            keys = [each.key for each, error in zip(states, errors, strict=True) if error is None]
            if len(keys) < len(states):
                error = next(each for each in errors if each is not None)
                logger.info(
                    "share group %s: state of %d partitions is not created yet: %s",
                    group_id,
                    len(states) - len(keys),
                    error,
                )

            def operation(protocol: ShareProtocol) -> Result[None]:
                if len(keys) < len(states):
                    protocol.not_initialized(group_id)
                return protocol.initialized(group_id, keys)

            self._run(group_id, operation).add_done(partial(_complete, outcome, errors))

        gather(created, combine).add_done(note)
        return outcome

    # Groups.

    def describe(self, group_ids: Iterable[str]) -> Pending[list[DescribedGroup]]:
        """Describe groups in the order of the request; an entry may be an error."""
        ids = list(group_ids)
        if not self.is_enabled():
            error = ApiError(ErrorCode.UNSUPPORTED_VERSION)
            return Pending.of([_not_described(group_id, error) for group_id in ids])
        reads = [self._run(each, partial(_describe, group_id=each)) for each in ids]

        def combine(done: list[Pending[DescribedGroup]]) -> list[DescribedGroup]:
            return [
                each.value if each.error is None else _not_described(group_id, each.error)
                for group_id, each in zip(ids, done, strict=True)
            ]

        return gather(reads, combine)

    def delete_state(self, group_id: str) -> Pending[None]:
        """Delete the state of all share partitions of an empty group, before the group itself."""
        deleted: Pending[None] = Pending()

        def finish(done: Pending[dict[UUID, ApiError | None]]) -> None:
            error = done.error or next((each for each in done.value.values() if each is not None), None)
            if error is not None:
                deleted.fail(error)
            else:
                deleted.complete(None)

        self._delete(group_id, None).add_done(finish)
        return deleted

    def on_topics_deleted(self, groups: Iterable[ShareGroup], topic_ids: Collection[UUID]) -> None:
        """Delete the state of deleted topics in all groups that this broker coordinates."""
        for group in groups:
            stored = group.stored
            if any(each in stored.initialized or each in stored.initializing for each in topic_ids):
                self._delete(group.group_id, topic_ids, must_be_empty=False)

    def retry_deletions(self) -> None:
        """Delete the state of deleted topics that could not be deleted before."""
        for group_id, keys in list(self._undeleted.items()):
            del self._undeleted[group_id]
            self._delete_states(group_id, sorted(keys), Pending(), is_topic_gone=True)

    def _delete(
        self,
        group_id: str,
        topic_ids: Collection[UUID] | None,
        *,
        must_be_empty: bool = True,
        author: GetAuthor | None = None,
    ) -> Pending[dict[UUID, ApiError | None]]:
        """Delete state; return the outcome of each topic that had any."""
        outcome: Pending[dict[UUID, ApiError | None]] = Pending()

        def begun(done: Pending[list[SharePartitionKey]]) -> None:
            if done.error is not None:
                outcome.fail(done.error)
            else:
                self._delete_states(group_id, done.value, outcome, is_topic_gone=not must_be_empty)

        def operation(protocol: ShareProtocol) -> Result[list[SharePartitionKey]]:
            return protocol.begin_delete(group_id, topic_ids, must_be_empty=must_be_empty, author=author)

        self._run(group_id, operation).add_done(begun)
        return outcome

    def _delete_states(
        self,
        group_id: str,
        keys: Sequence[SharePartitionKey],
        outcome: Pending[dict[UUID, ApiError | None]],
        *,
        is_topic_gone: bool,
    ) -> None:
        """Delete state and record what was deleted; the outcome of each topic is added to `outcome`."""

        def combine(done: list[Pending[None]]) -> list[ApiError | None]:
            return [_api_error(each.error) for each in done]

        def end(gathered: Pending[list[ApiError | None]]) -> None:
            outcomes: dict[UUID, ApiError | None] = {}
            failed: set[SharePartitionKey] = set()
            for key, error in zip(keys, gathered.value, strict=True):
                outcomes[key.topic_id] = outcomes.get(key.topic_id) or error
                if error is not None:
                    failed.add(key)
            if failed and is_topic_gone:
                # Nobody will ask for it again, since the topic's id never comes back.
                self._keep_undeleted(group_id, failed)
            done = [topic_id for topic_id, error in outcomes.items() if error is None]
            self._run(group_id, lambda protocol: protocol.end_delete(group_id, done)).add_done(
                partial(_complete, outcome, outcomes)
            )

        gather([self._states.delete(key) for key in keys], combine).add_done(end)

    def _keep_undeleted(self, group_id: str, keys: set[SharePartitionKey]) -> None:
        if sum(map(len, self._undeleted.values())) + len(keys) <= _UNDELETED_MAX:
            self._undeleted.setdefault(group_id, set()).update(keys)
        else:
            logger.warning("share group %s: state of %d partitions stays undeleted", group_id, len(keys))

    # Offsets.

    def start_offsets(
        self, group_id: str, wanted: Mapping[UUID, Collection[int]] | None
    ) -> Pending[dict[UUID, list[StartOffset]]]:
        """Return where share partitions begin, all of a group if `wanted` is None.

        It fails with ApiError if the group is not found.
        """
        found: Pending[dict[UUID, list[StartOffset]]] = Pending()

        def partitions(protocol: ShareProtocol) -> Result[Mapping[UUID, Collection[int]]]:
            group = protocol.group(group_id)
            if wanted is not None:
                return Result((), wanted)
            return Result((), {each: numbers for each, (_, numbers) in group.stored.initialized.items()})

        def read(done: Pending[Mapping[UUID, Collection[int]]]) -> None:
            if done.error is not None:
                found.fail(done.error)
                return
            keys = [
                SharePartitionKey(group_id, topic_id, number)
                for topic_id, numbers in done.value.items()
                for number in sorted(numbers)
            ]
            reads = [self._states.summary(key) for key in keys]

            def combine(read: list[Pending[PartitionState | None]]) -> dict[UUID, list[StartOffset]]:
                offsets: dict[UUID, list[StartOffset]] = {topic_id: [] for topic_id in done.value}
                for key, each in zip(keys, read, strict=True):
                    offsets[key.topic_id].append(_start_offset(key.partition, each))
                return offsets

            gather(reads, combine).add_done(lambda each: found.complete(each.value))

        self._run(group_id, partitions).add_done(read)
        return found

    def alter_offsets(
        self, group_id: str, topics: Mapping[str, Mapping[int, int]], author: GetAuthor | None = None
    ) -> Pending[dict[SharePartitionKey, ApiError | None]]:
        """Set start offsets of an empty group; return the outcome of each share partition.

        It fails with ApiError if the group is not found, has members, or a topic does not exist.
        """
        altered: Pending[dict[SharePartitionKey, ApiError | None]] = Pending()

        def begun(done: Pending[list[NewState]]) -> None:
            if done.error is not None:
                altered.fail(done.error)
                return
            states = done.value
            self._initialize(group_id, states).add_done(
                lambda each: altered.complete(
                    dict(zip((state.key for state in states), each.value, strict=True))
                )
            )

        self._run(group_id, lambda protocol: protocol.reset(group_id, topics, author)).add_done(begun)
        return altered

    def delete_offsets(
        self, group_id: str, topic_ids: Collection[UUID], author: GetAuthor | None = None
    ) -> Pending[dict[UUID, ApiError | None]]:
        """Delete the offsets of topics in an empty group; return the outcome of each topic that had any."""
        return self._delete(group_id, topic_ids, author=author)


def _describe(protocol: ShareProtocol, group_id: str) -> Result[DescribedGroup]:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    return Result((), protocol.describe(group_id))


def _start_offset(partition: int, read: Pending[PartitionState | None]) -> StartOffset:
    if read.error is not None:
        return StartOffset(partition, error=_api_error(read.error))
    state = read.value
    if state is None:
        return StartOffset(partition)
    return StartOffset(partition, state.start_offset, state.leader_epoch, state.complete_count)


def _complete(outcome: Pending[T], value: T, done: Pending[None]) -> None:
    """Give an outcome, whether or not it could be noted: it is noted again with the next change."""
    outcome.complete(value)


def _api_error(error: Exception | None) -> ApiError | None:
    if error is None or isinstance(error, ApiError):
        return error
    logger.error("the state of a share partition could not be changed", exc_info=error)
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _creation_error(state: NewState, done: Pending[None]) -> ApiError | None:
    error = _api_error(done.error)
    is_there = error is not None and error.code is ErrorCode.FENCED_STATE_EPOCH
    return None if is_there and state.state_epoch == CREATION_EPOCH else error


def _refused(error: ApiError) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def _not_described(group_id: str, error: Exception) -> DescribedGroup:
    if isinstance(error, ApiError):
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    return DescribedGroup(group_id=group_id, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
