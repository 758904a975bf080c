"""The group coordinator of one broker, which request handlers and the transaction coordinator call.

The hash of a group's id maps the group to one partition of ``__consumer_offsets``. `GroupCoordinator` finds
the partition, runs the operation on its shard through the runtime, and converts errors to the codes that
group clients handle. Decisions are made by the shard's protocols, not here. Kafka's counterpart is
``GroupCoordinatorService``.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending, gather
from kalda.common.turns import Steps
from kalda.common.types import UUID
from kalda.coordinator.group import offset_operations
from kalda.coordinator.group.classic.join import Requester
from kalda.coordinator.group.consumer.consumer_protocol import ConsumerProtocol
from kalda.coordinator.group.group import Group, GroupType
from kalda.coordinator.group.group_config import GroupConfig
from kalda.coordinator.group.group_shard import GroupShard, GroupStatistics
from kalda.coordinator.group.listing import describe, list_groups
from kalda.coordinator.group.offset_events import GetAuthor, note_group_deleted, when_written
from kalda.coordinator.group.offset_operations import TOMBSTONES_MAX, FetchedOffsets
from kalda.coordinator.runtime.coordinator_runtime import CoordinatorRuntime, PartitionState
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.protocol.messages.describe_groups import DescribedGroup
from kalda.protocol.messages.heartbeat import HeartbeatRequest
from kalda.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kalda.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kalda.protocol.messages.list_groups import ListedGroup
from kalda.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kalda.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kalda.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kalda.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

if TYPE_CHECKING:
    from kalda.coordinator.group.share.share_group import ShareGroup
    from kalda.coordinator.group.share.share_protocol import ShareProtocol

T = TypeVar("T")

GroupRuntime: TypeAlias = CoordinatorRuntime[GroupShard]

_CLIENT_CODES: Final = {
    # Group clients look the coordinator up again and retry.
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
_COMMIT_CODES: Final = _CLIENT_CODES | {
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
_FETCH_CODES: Final = {
    # Consumers before Kafka 3.9 fail on the other codes; on this one they look up again and retry.
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.NOT_COORDINATOR,
}


class GroupCoordinator:
    """The groups of all partitions that this broker leads, and their offsets."""

    def __init__(
        self,
        runtime: GroupRuntime,
        config: GroupConfig,
        statistics: GroupStatistics,
        partition_for: Callable[[str], int],
    ) -> None:
        """`partition_for` returns the partition of ``__consumer_offsets`` that a group belongs to."""
        self.runtime: Final = runtime
        self.config: Final = config
        self.statistics: Final = statistics
        self.partition_for: Final = partition_for
        self.delete_share_state: Callable[[str], Pending[None]] | None = None
        """Deletes the state of an empty share group at share coordinators; None without share groups."""
        self.forget_share_topics: Callable[[list[ShareGroup], Collection[UUID]], None] | None = None
        """Deletes the state of deleted topics in groups at share coordinators; None without share groups."""

    # The classic protocol.

    def join_group(
        self, request: JoinGroupRequest, requester: Requester
    ) -> JoinGroupResponse | Pending[JoinGroupResponse]:
        """Join; the response comes when the generation begins, or at once if the member must act first."""
        code = ErrorCode.NONE
        config = self.config
        if not request.group_id:
            code = ErrorCode.INVALID_GROUP_ID
        elif not (
            config.group_min_session_timeout_ms
            <= request.session_timeout_ms
            <= config.group_max_session_timeout_ms
        ):
            code = ErrorCode.INVALID_SESSION_TIMEOUT
        if code is not ErrorCode.NONE:
            return JoinGroupResponse(error_code=code, member_id=request.member_id)
        joined = self._write(
            request.group_id,
            lambda shard: shard.classic_requests(request.group_id).join(request, requester),
        )
        return _or_error(joined, lambda code: JoinGroupResponse(error_code=code, member_id=request.member_id))

    def sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse | Pending[SyncGroupResponse]:
        """Return the member's assignment, when the leader's assignment is committed."""
        if not request.group_id:
            return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        synced = self._write(
            request.group_id, lambda shard: shard.classic_requests(request.group_id).sync(request)
        )
        return _or_error(synced, lambda code: SyncGroupResponse(error_code=code))

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Prolong a member's session; nothing is written, so the response comes at once."""
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        try:
            shard = self.runtime.shard(self.partition_for(request.group_id))
            return shard.classic_requests(request.group_id).heartbeat(request)
        except ApiError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # The member gets a full session when the group is loaded, so it counts as alive.
                return ErrorCode.NONE
            return error.code

    def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse | Pending[LeaveGroupResponse]:
        """Remove members from a group."""
        if not request.group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)

        return self._write(
            request.group_id, lambda shard: shard.classic_requests(request.group_id).leave(request)
        )

    # Offsets.

    def commit_offsets(
        self, request: OffsetCommitRequest, version: int, author: GetAuthor | None = None
    ) -> Pending[OffsetCommitResponse]:
        """Commit offsets; the response comes when they are replicated."""

        def operation(shard: GroupShard) -> Result[OffsetCommitResponse]:
            result = offset_operations.commit(shard, request, version, author)
            shard.classic.note_commit(request.group_id, request.member_id)
            self.statistics.offset_commits += len(result.records)
            return result

        return self._write(request.group_id, operation, codes=_COMMIT_CODES)

    def txn_offset_commit(
        self, request: TxnOffsetCommitRequest, version: int
    ) -> TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]:
        """Commit offsets as part of a producer's transaction; the caller has verified the transaction."""
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)

        def operation(shard: GroupShard) -> Result[TxnOffsetCommitResponse]:
            result = offset_operations.transactional_commit(shard, request, version)
            self.statistics.offset_commits += len(result.records)
            return result

        producer = (request.producer_id, request.producer_epoch)
        return self._write(request.group_id, operation, producer=producer, codes=_COMMIT_CODES)

    def fetch_offsets(
        self,
        group_id: str,
        topics: Sequence[tuple[str, Sequence[int]]] | None,
        *,
        member_id: str | None = None,
        epoch: int = -1,
        require_stable: bool = False,
    ) -> Pending[FetchedOffsets]:
        """Fetch committed offsets, all if `topics` is None; errors are in the result, which never fails."""

        def operation(shard: GroupShard) -> Result[FetchedOffsets]:
            offsets = offset_operations.fetch(
                shard, group_id, topics, member_id=member_id, epoch=epoch, require_stable=require_stable
            )
            return Result((), offsets)

        found = self._write(group_id, operation, codes=_FETCH_CODES)
        return _or_error(found, lambda code: FetchedOffsets(group_id, error=code))

    def delete_offsets(
        self, request: OffsetDeleteRequest, author: GetAuthor | None = None
    ) -> OffsetDeleteResponse | Pending[OffsetDeleteResponse]:
        """Delete offsets of topics that the group does not subscribe to."""
        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)

        def operation(shard: GroupShard) -> Result[OffsetDeleteResponse]:
            result = offset_operations.delete(shard, request, author)
            self.statistics.offset_deletions += len(result.records)
            return result

        return self._write(request.group_id, operation)

    def on_topics_deleted(self, deleted: Collection[str], topic_ids: Collection[UUID] = ()) -> None:
        """Delete the offsets of deleted topics in all groups that this broker coordinates."""
        if topic_ids and self.forget_share_topics is not None:
            shares = [group for group in self.groups() if group.kind is GroupType.SHARE]
            if shares:
                self.forget_share_topics(cast("list[ShareGroup]", shares), topic_ids)
        if deleted:
            for number in self._active():
                self._forget_topics(number, deleted)

    def _forget_topics(self, number: int, deleted: Collection[str]) -> None:
        def operation(shard: GroupShard) -> Result[bool]:
            result = offset_operations.delete_topics(shard, deleted)
            self.statistics.offset_deletions += len(result.records)
            return result

        def go_on(done: Pending[bool]) -> None:
            # A new coordinator does not repeat this: the remaining offsets expire.
            if done.error is None and done.value:
                self._forget_topics(number, deleted)

        timeout_ms = self.config.offsets_commit_timeout_ms
        self.runtime.write(number, operation, timeout_ms=timeout_ms).add_done(go_on)

    # Groups.

    def groups(self) -> list[Group]:
        """Return all groups that this broker coordinates, for metrics."""
        return [group for number in self._active() for group in self.runtime.shard(number).groups.values()]

    def held_bytes(self) -> int:
        """Return the memory that the members of all groups take, for `MemberMemory`."""
        shards = map(self.runtime.shard, self._active())
        return sum(group.held_bytes for shard in shards for group in shard.groups.values())

    def committed_offsets(self) -> Iterator[tuple[str, str, list[tuple[int, int]]]]:
        """Iterate over committed offsets, for metrics: group, topic, and (partition, offset) pairs.

        Groups may be added and deleted between two steps; the iterator skips groups that were deleted.
        """
        for offsets in [self.runtime.shard(number).offsets for number in self._active()]:
            for group_id in tuple(offsets.groups()):
                for topic, committed in tuple(offsets.of_group(group_id).items()):
                    yield group_id, topic, [(index, each.offset) for index, each in committed.items()]

    def offset_count(self) -> int:
        """Return how many offsets the groups of this broker have committed."""
        return sum(self.runtime.shard(number).offsets.count for number in self._active())

    def list_groups(
        self, states: Set[str], types: Set[str]
    ) -> Steps[Pending[tuple[ErrorCode, list[ListedGroup]]]]:
        """List groups by state and type, in lowercase; empty sets stand for all. Each partition is a step.

        The error code reports partitions that are being loaded.
        """
        loading = PartitionState.LOADING in self.runtime.states().values()
        reads = []
        for number in self._active():
            yield
            reads.append(self.runtime.read(number, lambda shard: list_groups(shard, states, types)))

        def combine(done: list[Pending[list[ListedGroup]]]) -> tuple[ErrorCode, list[ListedGroup]]:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE
            groups: list[ListedGroup] = []
            for each in done:
                if each.error is None:
                    groups.extend(each.value)
                elif _code(each.error) is not ErrorCode.NOT_COORDINATOR:
                    code = _CLIENT_CODES.get(_code(each.error), _code(each.error))
            return code, groups

        return gather(reads, combine)

    def describe_groups(self, group_ids: Iterable[str], version: int) -> Pending[list[DescribedGroup]]:
        """Describe classic groups; an unknown group has an error or, in older versions, the state Dead."""
        ids = list(group_ids)
        reads = [self._write(each, partial(_describe, group_id=each, version=version)) for each in ids]

        def combine(done: list[Pending[DescribedGroup]]) -> list[DescribedGroup]:
            return [
                each.value
                if each.error is None
                else DescribedGroup(group_id=group_id, error_code=_code(each.error))
                for group_id, each in zip(ids, done, strict=True)
            ]

        return gather(reads, combine)

    def delete_groups(
        self, group_ids: Iterable[str], author: GetAuthor | None = None
    ) -> Pending[dict[str, ErrorCode]]:
        """Delete empty groups with all their offsets; return the outcome for each."""
        ids = list(dict.fromkeys(group_ids))
        deletions = [self._begin_delete(group_id, author) for group_id in ids]

        def combine(done: list[Pending[ErrorCode]]) -> dict[str, ErrorCode]:
            return {group_id: each.value for group_id, each in zip(ids, done, strict=True)}

        return gather(deletions, combine)

    def _begin_delete(self, group_id: str, author: GetAuthor | None) -> Pending[ErrorCode]:
        """Delete a group; of a share group, the state at share coordinators first."""
        deleted: Pending[ErrorCode] = Pending()
        group = self._find(group_id)
        if group is None or group.kind is not GroupType.SHARE or self.delete_share_state is None:
            return self._delete_group(group_id, deleted, author)

        def go_on(done: Pending[None]) -> None:
            if done.error is not None:
                deleted.complete(_code(done.error))
            else:
                self._delete_group(group_id, deleted, author)

        self.delete_share_state(group_id).add_done(go_on)
        return deleted

    def _find(self, group_id: str) -> Group | None:
        """Return a group as it is now, None if it is not found here."""
        try:
            return self.runtime.shard(self.partition_for(group_id)).groups.get(group_id)
        except ApiError:
            return None

    def _delete_group(
        self, group_id: str, deleted: Pending[ErrorCode], author: GetAuthor | None
    ) -> Pending[ErrorCode]:
        """Delete a group in as many writes as its offsets need; the last write deletes the group itself."""

        def operation(shard: GroupShard) -> Result[bool]:
            group = shard.group(group_id)
            group.validate_delete()
            records = offset_operations.delete_all(shard, group_id)
            if len(records) > TOMBSTONES_MAX:
                return Result(records[:TOMBSTONES_MAX], False)
            note = when_written(lambda: note_group_deleted(shard.events, group_id, author))
            return Result([*records, *group.tombstones()], True, note)

        def go_on(done: Pending[bool]) -> None:
            if done.error is not None:
                deleted.complete(_code(done.error))
            elif done.value:
                deleted.complete(ErrorCode.NONE)
            else:
                self._delete_group(group_id, deleted, author)

        self._write(group_id, operation).add_done(go_on)
        return deleted

    # Other protocols.

    def run_consumer(self, group_id: str, operation: Callable[[ConsumerProtocol], Result[T]]) -> Pending[T]:
        """Run an operation of the consumer protocol in the shard of a group."""

        def run(shard: GroupShard) -> Result[T]:
            assert shard.consumer is not None, "the shard was made without the consumer protocol"
            return operation(shard.consumer)

        return self._write(group_id, run)

    def run_share(self, group_id: str, operation: "Callable[[ShareProtocol], Result[T]]") -> Pending[T]:
        """Run an operation of share groups in the shard of a group."""

        def run(shard: GroupShard) -> Result[T]:
            assert shard.share is not None, "the shard was made without share groups"
            return operation(shard.share)

        return self._write(group_id, run)

    # Internals.

    def _active(self) -> list[int]:
        return [n for n, state in self.runtime.states().items() if state is PartitionState.ACTIVE]

    def _write(
        self,
        group_id: str,
        operation: Callable[[GroupShard], Result[T]],
        *,
        producer: tuple[int, int] | None = None,
        codes: Mapping[ErrorCode, ErrorCode] = _CLIENT_CODES,
    ) -> Pending[T]:
        """Run an operation; convert the code of its error to one that group clients handle."""

        def run(shard: GroupShard) -> Result[T]:
            result = operation(shard)
            on_written = result.on_written
            if on_written is None:
                return result
            return replace(result, on_written=lambda code: on_written(codes.get(code, code)))

        written = self.runtime.write(
            self.partition_for(group_id),
            run,
            timeout_ms=self.config.offsets_commit_timeout_ms,
            producer=producer,
        )
        return written.then(partial(_translated, codes))


def _describe(shard: GroupShard, group_id: str, version: int) -> Result[DescribedGroup]:
    return Result((), describe(shard, group_id, version))


def _translated(codes: Mapping[ErrorCode, ErrorCode], done: Pending[T]) -> T:
    """Return the response; raise an error with the code that `codes` has for it."""
    error = done.error
    if isinstance(error, ApiError) and error.code in codes:
        raise ApiError(codes[error.code], error.message)
    return done.value


def _or_error(response: Pending[T], refused: Callable[[ErrorCode], T]) -> Pending[T]:
    """Return the response, or what `refused` makes of the error that came instead."""
    return response.then(lambda done: done.value if done.error is None else refused(_code(done.error)))


def _code(error: Exception) -> ErrorCode:
    return error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
