"""Commits and fetches a group's offsets: on request, automatically, and before partitions are revoked.

One commit is under way at a time, in the order of the calls, so that an older offset never overwrites a newer
one. Automatic commits take the positions at the moment when the application calls poll: what earlier calls
returned has been processed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final, Protocol

from kalda.clients.consumer.group.errors import (
    CommitFailedError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
    StaleMemberEpochError,
)
from kalda.clients.consumer.group.requests import GroupRequests
from kalda.clients.consumer.offset_requests import (
    COORDINATOR_MOVED,
    CommitIdentity,
    Offsets,
    TopicIds,
    UnknownPartitionsError,
    commit_request,
    fetch_request,
    read_commit_response,
    read_fetch_response,
    version_max,
)
from kalda.clients.consumer.subscription_state import SubscriptionState
from kalda.clients.errors import ClientError
from kalda.clients.values import OffsetAndMetadata
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition, is_other_topic
from kalda.protocol.messages.offset_commit import OffsetCommitResponse
from kalda.protocol.messages.offset_fetch import OffsetFetchResponse
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

PENDING_COMMITS_MAX: Final = 10_000
"""Commits without waiting that may be pending at once; more show that commits come faster than responses."""
_FROM_STATIC_MEMBERS: Final = 7

OnCommit = Callable[[Offsets, ClientError | None], None]


class CommitMember(Protocol):
    """The part of a group member that commits use."""

    def commit_identity(self) -> CommitIdentity:
        """Return in whose name to commit.

        Raises:
            ClientError: the member cannot commit now.
        """
        ...

    def fetch_identity(self) -> CommitIdentity:
        """Return in whose name to ask for committed offsets."""
        ...

    def on_commit_refused(self, code: ErrorCode, sent: CommitIdentity) -> ClientError:
        """Process a code of `MEMBERSHIP_ERRORS`; return what to raise."""
        ...


class OffsetCommits:
    """The committed offsets of one consumer's group."""

    def __init__(
        self,
        requests: GroupRequests,
        subscriptions: SubscriptionState,
        member: CommitMember,
        *,
        auto_commit_interval_ms: int | None,
        on_committed: Callable[[Offsets], None],
    ) -> None:
        """`auto_commit_interval_ms` is None without auto commit; `on_committed` runs after each success."""
        self._requests: Final = requests
        self._subscriptions: Final = subscriptions
        self._member: Final = member
        self._interval_seconds: Final = (
            None if auto_commit_interval_ms is None else auto_commit_interval_ms / 1000
        )
        self._on_committed: Final = on_committed
        self._order: Final = asyncio.Lock()
        self._pending: Final[set[asyncio.Task[None]]] = set()
        self._auto_commit: asyncio.Task[None] | None = None
        self._auto_commit_at: float | None = None
        self._auto_commit_failures = 0
        """Automatic commits in a row that failed and may succeed later."""

    @property
    def is_automatic(self) -> bool:
        """Whether `enable.auto.commit` is on."""
        return self._interval_seconds is not None

    @property
    def next_auto_commit_at(self) -> float | None:
        """When poll should run for the next automatic commit, in monotonic seconds; None if never."""
        return self._auto_commit_at

    def polled(self, now: float) -> None:
        """Commit the positions of this moment if an automatic commit is due."""
        if self._interval_seconds is None:
            return
        if self._auto_commit_at is None:
            self._auto_commit_at = now + self._interval_seconds
        if now < self._auto_commit_at:
            return
        # Also while a commit is under way: poll would be due again at once, over and over.
        self._auto_commit_at = now + self._interval_seconds
        if self._auto_commit is not None:
            return
        offsets = self._subscriptions.all_consumed()
        if offsets:
            task = asyncio.create_task(self._commit_automatically(offsets), name="automatic commit")
            self._auto_commit = task
            task.add_done_callback(self._auto_commit_done)

    def postpone_auto_commit(self, now: float) -> None:
        """Start the interval again: the assignment has changed."""
        if self._interval_seconds is not None:
            self._auto_commit_at = now + self._interval_seconds

    async def commit(self, offsets: Offsets, *, timeout_ms: int) -> None:
        """Commit offsets and wait for the result, with retries.

        Raises:
            CommitFailedError: the member is no longer part of the group.
            RebalanceInProgressError: the member has to join first.
            UnknownTopicOrPartitionError: a topic has been deleted; the offsets of all others are committed.
            ClientError: the offsets cannot be committed, or not in time.
        """
        _check(offsets)
        await self._retry(lambda: self._attempt(offsets), offsets, timeout_ms)

    def commit_nowait(self, offsets: Offsets, on_commit: OnCommit | None) -> None:
        """Commit offsets without waiting and without retries; `on_commit` runs on the loop.

        Raises:
            CommitFailedError: too many commits are pending.
        """
        _check(offsets)
        if len(self._pending) >= PENDING_COMMITS_MAX:
            raise CommitFailedError(f"{PENDING_COMMITS_MAX} commits wait for responses of the coordinator")
        task = asyncio.create_task(self._commit_once(dict(offsets), on_commit), name="commit")
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def commit_before_revocation(self, offsets: Offsets, *, timeout_ms: int) -> None:
        """Commit what was consumed of partitions that other members will get; failures are logged.

        Partitions that the coordinator does not know are left out: they were consumed, so their topics have
        been deleted, and the group waits for this member (KAFKA-16224).
        """

        async def attempt() -> None:
            try:
                await self._attempt(offsets)
            except UnknownPartitionsError as error:
                logger.info("Offsets of deleted topics are not committed: %s", error)

        try:
            await self._retry(attempt, offsets, timeout_ms)
        except ClientError as error:
            logger.warning(
                "Group %s: automatic commit before a rebalance failed; records may be consumed twice: %s",
                self._requests.group_id,
                error,
            )

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets, None where there is none; one attempt.

        Raises:
            ClientError: the coordinator cannot be asked now (retriable), or refuses.
        """
        if not partitions:
            return {}
        identity = self._member.fetch_identity()
        group_id = self._requests.group_id
        ids = self._subscriptions.topic_ids(partitions)
        request = VersionedRequest(
            ApiKey.OFFSET_FETCH,
            lambda version: fetch_request(group_id, partitions, identity, version, ids),
            version_max=version_max(partitions, ids),
        )
        response = await self._requests.send(request, OffsetFetchResponse)
        try:
            return read_fetch_response(group_id, response, self._requests.coordinator_text, ids)
        except ClientError as error:
            if error.code in COORDINATOR_MOVED:
                self._requests.forget_coordinator()
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._requests.client.metadata.request_update()
            if error.code in (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                # The next heartbeat brings another epoch, or fences the member; a later attempt knows.
                self._member.on_commit_refused(error.code, identity)
                raise StaleMemberEpochError(str(error)) from error
            raise

    async def close(self, timeout_ms: int) -> None:
        """Commit automatically for the last time, wait for pending commits; end the tasks in any case."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        try:
            if self.is_automatic:
                offsets = self._subscriptions.all_consumed()
                await self.commit_before_revocation(offsets, timeout_ms=timeout_ms)
            if self._pending:
                await asyncio.wait(self._pending, timeout=max(deadline - loop.time(), 0))
        finally:
            tasks = [*self._pending, *([self._auto_commit] if self._auto_commit else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # Internals

    async def _retry(self, attempt: Callable[[], Awaitable[None]], offsets: Offsets, timeout_ms: int) -> None:
        if offsets:
            what = f"the commit of group {self._requests.group_id}"
            await self._requests.client.retry(what, attempt, timeout_ms=timeout_ms)

    async def _attempt(self, offsets: Offsets) -> None:
        async with self._order:
            identity = self._member.commit_identity()
            ids = self._subscriptions.topic_ids(offsets)
            request = commit_request(self._requests.group_id, offsets, identity, ids)
            version_min = 0 if identity.group_instance_id is None else _FROM_STATIC_MEMBERS
            response = await self._requests.send(
                VersionedRequest(
                    ApiKey.OFFSET_COMMIT,
                    lambda _: request,
                    version_max=version_max(offsets, ids),
                    version_min=version_min,
                ),
                OffsetCommitResponse,
            )
            try:
                read_commit_response(
                    self._requests.group_id,
                    response,
                    lambda code: self._member.on_commit_refused(code, identity),
                    self._requests.coordinator_text,
                    ids,
                )
            except UnknownPartitionsError as error:
                error.is_final = self._are_deleted(error.partitions, ids)
                raise
            except ClientError as error:
                if error.code in COORDINATOR_MOVED:
                    self._requests.forget_coordinator()
                raise
        self._on_committed(offsets)

    def _are_deleted(self, partitions: Collection[TopicPartition], ids: TopicIds) -> bool:
        """Whether partitions that were consumed are no longer in the metadata.

        `ids` are those of their topics; another topic may have the name now.
        """
        metadata = self._requests.client.metadata
        # Not `all_consumed`, which leaves out the topics that the metadata does not have any more.
        consumed = self._subscriptions.all_positions()
        snapshot = metadata.snapshot
        if all(
            each in consumed
            and (
                snapshot.partition(each) is None
                or is_other_topic(snapshot.topic_id(each.topic), ids[each.topic])
            )
            for each in partitions
        ):
            return True
        # The next attempt finds newer metadata.
        metadata.request_update()
        return False

    async def _commit_once(self, offsets: Offsets, on_commit: OnCommit | None) -> None:
        failure: ClientError | None = None
        try:
            if offsets:
                await self._attempt(offsets)
        except ClientError as error:
            failure = error
            if error.is_retriable:
                failure = RetriableCommitFailedError(error)
                failure.__cause__ = error
        if on_commit is not None:
            on_commit(offsets, failure)
        elif failure is not None:
            logger.error("Group %s: a commit failed: %s", self._requests.group_id, failure)

    async def _commit_automatically(self, offsets: Offsets) -> None:
        client = self._requests.client
        try:
            await self._attempt(offsets)
            self._auto_commit_failures = 0
        except ClientError as error:
            if error.is_retriable or isinstance(error, RebalanceInProgressError):
                self._auto_commit_failures += 1
                wait = client.retry_backoff.seconds(self._auto_commit_failures)
                self._auto_commit_at = client.clock.monotonic() + wait
                logger.debug("Group %s: automatic commit failed: %s", self._requests.group_id, error)
            else:
                logger.warning("Group %s: automatic commit failed: %s", self._requests.group_id, error)

    def _auto_commit_done(self, task: asyncio.Task[None]) -> None:
        self._auto_commit = None
        if not task.cancelled():
            task.result()


def _check(offsets: Offsets) -> None:
    for partition, offset in offsets.items():
        if offset.offset < 0:
            raise ValueError(f"cannot commit offset {offset.offset} of {partition}: offsets are 0 or more")
