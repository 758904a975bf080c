"""Elects the process that writes, through a group of the cluster, as Confluent's registry does.

All processes of a registry, Confluent's among them, are members of one classic group of the protocol type
``sr``. The leader of the group chooses the writer and sends the others its address. A process is the writer
only within its lease, a part of the session time-out since it sent the last heartbeat that the coordinator
answered. The coordinator waits longer than that before it lets a group go on without the process, so two
processes never hold a lease at once.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from time import monotonic
from typing import Final

from kalda.clients.consumer.group.requests import GroupRequests
from kalda.clients.errors import ClientError, error_for
from kalda.clients.network_client import NetworkClient
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.http.registry.identity import (
    DUPLICATE_URLS,
    PROTOCOL,
    PROTOCOL_TYPE,
    Assignment,
    Identity,
    IdentityError,
    elect,
)
from kalda.http.settings import RegistrySettings
from kalda.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kalda.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kalda.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kalda.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from kalda.runtime.system.random import SYSTEM_RANDOM

logger: Final = logging.getLogger(__name__)

LEASE_PART: Final = 0.7
"""The part of the session time-out that a lease lasts. The rest covers a change that began just before its
end, on its way to the topic."""

JOIN_EXTRA_MS: Final = 5_000
_BACKOFF_MS: Final = (100, 5_000)

OnChange = Callable[[], Awaitable[None]]


class _RejoinError(Exception):
    """The generation is over: another one begins with a new join."""


class Election:
    """This process as a member of the group."""

    def __init__(
        self, client: NetworkClient, settings: RegistrySettings, identity: Identity, before_rejoin: OnChange
    ) -> None:
        """`before_rejoin` returns when no change of this process is under way."""
        self.identity: Final = identity
        self.joined: Final = asyncio.Event()
        """Set while the process knows who writes."""
        self.writer: Identity | None = None
        """Who writes, as the last election said; None before it, and if no member is eligible."""
        self.over: asyncio.Event = asyncio.Event()
        """Set when the election under which a request is forwarded is over; each one has its own."""
        self.term = 0
        """Grows with each election that made this process the writer."""
        self._settings: Final = settings
        self._requests: Final = GroupRequests(client, settings.schema_registry_group_id)
        self._before_rejoin: Final = before_rejoin
        self._backoff: Final = ExponentialBackoff(*_BACKOFF_MS, SYSTEM_RANDOM.uniform)
        self._member_id = ""
        self._generation = -1
        self._is_writer = False
        self._lease_until = 0.0
        self._extended = asyncio.Event()
        """Set when the lease lasts longer, or is over for good; each time has its own."""
        self._task: asyncio.Task[None] | None = None

    @property
    def is_writer(self) -> bool:
        """Whether this process may write at this moment."""
        return self._is_writer and monotonic() < self._lease_until

    async def is_writer_again(self, seconds: float) -> bool:
        """Return whether this process may write, after its next heartbeat where its lease has ended."""
        if self._is_writer and not self.is_writer:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._extended.wait()
        return self.is_writer

    def start(self) -> None:
        """Begin to join."""
        self._task = asyncio.create_task(self._run(), name="registry election")

    async def close(self) -> None:
        """Leave the group, so that another process need not wait for the session's end."""
        self._is_writer = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._member_id:
            leave = LeaveGroupRequest(
                group_id=self._requests.group_id,
                member_id=self._member_id,
                members=[MemberIdentity(member_id=self._member_id)],
            )
            with contextlib.suppress(ClientError):
                await self._requests.send(leave, LeaveGroupResponse, timeout_ms=2_000)

    # The life of a member.

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                await self._join()
                failures = 0
                await self._stay()
            except _RejoinError as error:
                logger.info("the registry's group elects again: %s", error)
                await self._step_back()
            except (ClientError, IdentityError) as error:
                failures += 1
                self._forget(error)
                seconds = self._backoff.seconds(failures)
                logger.warning(
                    "the registry's group %s cannot be used, next attempt in %.1f s: %s",
                    self._requests.group_id,
                    seconds,
                    error,
                )
                if monotonic() >= self._lease_until:
                    await self._step_back()
                await asyncio.sleep(seconds)
            except Exception:
                failures += 1
                logger.exception("the election of the registry's writer failed; it goes on")
                await self._step_back()
                await asyncio.sleep(self._backoff.seconds(failures))

    async def _step_back(self) -> None:
        """Stop writing; return when no change is under way."""
        was_writer, self._is_writer = self._is_writer, False
        self._wake_waiting()
        self.joined.clear()
        self.over.set()
        if was_writer:
            await self._before_rejoin()

    async def _join(self) -> None:
        settings = self._settings
        # The one that was the writer says so, and stays it.
        metadata = replace(self.identity, is_writer=self.writer == self.identity).encode()
        joined = await self._requests.send(
            JoinGroupRequest(
                group_id=self._requests.group_id,
                session_timeout_ms=settings.kafkagroup_session_timeout_ms,
                rebalance_timeout_ms=settings.kafkagroup_rebalance_timeout_ms,
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=metadata)],
            ),
            JoinGroupResponse,
            timeout_ms=settings.kafkagroup_rebalance_timeout_ms + JOIN_EXTRA_MS,
        )
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            raise _RejoinError("the coordinator gave this member an id")
        self._check(joined.error_code, "join")
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == joined.member_id:
            members = {each.member_id: Identity.decode(each.metadata) for each in joined.members}
            chosen = elect(members).encode()
            assignments = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=chosen) for member_id in members
            ]
        sent_at = monotonic()
        synced = await self._requests.send(
            SyncGroupRequest(
                group_id=self._requests.group_id,
                generation_id=self._generation,
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=PROTOCOL,
                assignments=assignments,
            ),
            SyncGroupResponse,
            timeout_ms=settings.kafkagroup_rebalance_timeout_ms + JOIN_EXTRA_MS,
        )
        self._check(synced.error_code, "sync")
        self._assigned(Assignment.decode(synced.assignment), sent_at)

    def _assigned(self, assignment: Assignment, sent_at: float) -> None:
        if assignment.error == DUPLICATE_URLS:
            raise IdentityError(
                f"two members of the group have one address, and this one has {self.identity.url}; set "
                "`host.name` and the port of each process so that others reach it"
            )
        self.writer = assignment.writer
        self.over.set()
        self.over = asyncio.Event()
        self._is_writer = assignment.member_id == self._member_id
        self._extend_lease(sent_at)
        if self._is_writer:
            self.term += 1
            logger.info("this process writes the schema topic, since generation %d", self._generation)
        elif self.writer is None:
            logger.warning("no member of the registry's group may write, so schemas can only be read")
        else:
            logger.info("%s writes the schema topic", self.writer.url)
        self.joined.set()

    async def _stay(self) -> None:
        interval = self._settings.kafkagroup_heartbeat_interval_ms / 1000
        failures = 0
        while True:
            await asyncio.sleep(interval if not failures else min(interval, self._backoff.seconds(failures)))
            sent_at = monotonic()
            try:
                answer = await self._requests.send(
                    HeartbeatRequest(
                        group_id=self._requests.group_id,
                        generation_id=self._generation,
                        member_id=self._member_id,
                    ),
                    HeartbeatResponse,
                    timeout_ms=self._settings.kafkagroup_session_timeout_ms,
                )
            except ClientError as error:
                if monotonic() >= self._lease_until:
                    raise
                failures += 1
                logger.info("a heartbeat of the registry's group failed: %s", error)
                continue
            if answer.error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                self._requests.forget_coordinator()
            if answer.error_code in _PASSING and monotonic() < self._lease_until:
                failures += 1
                continue
            self._check(answer.error_code, "heartbeat")
            failures = 0
            self._extend_lease(sent_at)

    def _extend_lease(self, sent_at: float) -> None:
        seconds = self._settings.kafkagroup_session_timeout_ms / 1000 * LEASE_PART
        self._lease_until = sent_at + seconds
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        self._extended.set()
        self._extended = asyncio.Event()

    def _check(self, code: int, what: str) -> None:
        if code == ErrorCode.NONE:
            return
        error = ErrorCode.of(code)
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID):
            if error is not ErrorCode.ILLEGAL_GENERATION:
                self._member_id = ""
            raise _RejoinError(error.name)
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            raise _RejoinError("the members changed")
        raise error_for(error, f"{what} of group {self._requests.group_id}")

    def _forget(self, error: Exception) -> None:
        code = getattr(error, "code", None)
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._requests.forget_coordinator()


_PASSING: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
