"""Serves the members of consumer groups that use the classic protocol.

JoinGroup acts as a full heartbeat, and the member epoch is the generation. SyncGroup returns the partitions
that the member may use. Heartbeat answers REBALANCE_IN_PROGRESS when there are partitions to fetch or to
revoke. No member leads: the coordinator assigns.
"""

import logging
from dataclasses import replace
from functools import partial
from typing import Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.classic.classic_protocol import ClassicProtocol
from kalda.coordinator.group.classic.join import REQUIRES_MEMBER_ID_FROM, Requester
from kalda.coordinator.group.consumer.consumer_group import PROTOCOL_TYPE, ConsumerGroup
from kalda.coordinator.group.consumer.consumer_groups import ConsumerGroups
from kalda.coordinator.group.consumer.embedded_protocol import (
    assignment_bytes,
    owned_assignment,
    read_subscription,
)
from kalda.coordinator.group.consumer.heartbeats import Heartbeats, takeover
from kalda.coordinator.group.consumer.member import (
    ClassicProtocolOffer,
    ClassicSide,
    Member,
    MemberState,
)
from kalda.coordinator.group.consumer.member_validation import check_not_fenced
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from kalda.protocol.messages.heartbeat import HeartbeatRequest
from kalda.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kalda.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from kalda.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kalda.protocol.protocol_errors import ProtocolError

logger: Final = logging.getLogger(__name__)

_JOIN: Final = "join"
_SYNC: Final = "sync"


class ClassicMembers:
    """Serves requests of the classic protocol for consumer groups, in place of `ClassicProtocol`."""

    def __init__(self, groups: ConsumerGroups, heartbeats: Heartbeats, classic: ClassicProtocol) -> None:
        self._groups: Final = groups
        self._heartbeats: Final = heartbeats
        self._classic: Final = classic

    # JoinGroup.

    def join(self, request: JoinGroupRequest, requester: Requester) -> Result[JoinGroupResponse]:
        """Join, or join again; a consumer group without members becomes a classic group."""
        group = self._groups.group(request.group_id)
        if group.is_empty:
            del self._groups.shard.groups[group.group_id]
            result = self._classic.join(request, requester)
            return replace(result, records=[*group.tombstones(), *result.records])
        try:
            return self._join(group, request, requester)
        except ApiError as error:
            refused = JoinGroupResponse(error_code=error.code, member_id=request.member_id)
            return Result((), Pending.of(refused))

    def _join(
        self, group: ConsumerGroup, request: JoinGroupRequest, requester: Requester
    ) -> Result[JoinGroupResponse]:
        is_unknown = not request.member_id
        member_id = request.member_id or self._groups.make_member_id()
        self._check_join(group, request, member_id)
        instance_id = request.group_instance_id
        if is_unknown and instance_id is None and requester.api_version >= REQUIRES_MEMBER_ID_FROM:
            required = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
            return Result((), Pending.of(required))
        subscription = _subscription(request)
        records: list[CoordinatorRecord] = []
        before = self._joining(group, member_id, instance_id, is_unknown, records)
        updated = _changed(before, request, requester, subscription)
        step = self._heartbeats.update(group, before, updated, records)
        owned = owned_assignment(subscription.owned_partitions, self._groups.topics)
        member = self._heartbeats.assign(step, owned, records)
        answer: Pending[JoinGroupResponse] = Pending()
        response = JoinGroupResponse(
            member_id=member_id,
            generation_id=member.epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=request.protocols[0].name,
        )
        return Result(records, answer, partial(self._on_joined, group.group_id, member, answer, response))

    def _on_joined(
        self,
        group_id: str,
        member: Member,
        answer: Pending[JoinGroupResponse],
        response: JoinGroupResponse,
        code: ErrorCode,
    ) -> None:
        if code is ErrorCode.NONE:
            group = self._groups.find(group_id)
            if group is not None and member.member_id in group.members:
                self._groups.unwatch_classic(group_id, member.member_id, _JOIN)
                self._groups.touch_session(group_id, member)
                self._groups.watch_classic(group_id, member, _SYNC)
                if group.is_all_classic:
                    self._groups.migration.check(group_id)
        else:
            response = JoinGroupResponse(error_code=code, member_id=response.member_id)
        answer.complete(response)

    def _check_join(self, group: ConsumerGroup, request: JoinGroupRequest, member_id: str) -> None:
        """Check that the group has room, and that all classic members support one of the protocols."""
        if (
            len(group.members) >= self._groups.config.group_consumer_max_size
            and member_id not in group.members
        ):
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        names = [protocol.name for protocol in request.protocols]
        if request.protocol_type != PROTOCOL_TYPE or not group.supports_classic_protocols(
            names, without=member_id
        ):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _joining(
        self,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str | None,
        is_unknown: bool,
        records: list[CoordinatorRecord],
    ) -> Member:
        if instance_id is None:
            return group.members.get(member_id) or Member(member_id)
        present = group.static_member(instance_id)
        if is_unknown:
            return Member(member_id) if present is None else takeover(group, present, member_id, records)
        if present is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        check_not_fenced(present, member_id, instance_id)
        return present

    # SyncGroup.

    def sync(self, request: SyncGroupRequest) -> Result[SyncGroupResponse]:
        """Return the partitions that the member may use."""
        try:
            group, member, classic = self._member(
                request.group_id, request.member_id, request.group_instance_id, request.generation_id
            )
            name = classic.protocols[0].name
            if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (
                None,
                name,
            ):
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
                self._groups.watch_classic(group.group_id, member, _JOIN)
                raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        except ApiError as error:
            return Result((), Pending.of(SyncGroupResponse(error_code=error.code)))
        answer: Pending[SyncGroupResponse] = Pending()
        response = SyncGroupResponse(
            protocol_type=PROTOCOL_TYPE,
            protocol_name=name,
            assignment=assignment_bytes(member, member.assigned, self._groups.topics),
        )
        return Result((), answer, partial(self._on_synced, group.group_id, member, answer, response))

    def _on_synced(
        self,
        group_id: str,
        member: Member,
        answer: Pending[SyncGroupResponse],
        response: SyncGroupResponse,
        code: ErrorCode,
    ) -> None:
        if code is not ErrorCode.NONE:
            response = SyncGroupResponse(error_code=code)
        elif self._groups.find(group_id) is not None:
            self._groups.unwatch_classic(group_id, member.member_id, _SYNC)
            self._groups.touch_session(group_id, member)
        answer.complete(response)

    # Heartbeat.

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Prolong the member's session; have it join again if it has partitions to get or to revoke."""
        try:
            group, member, _ = self._member(
                request.group_id, request.member_id, request.group_instance_id, request.generation_id
            )
        except ApiError as error:
            return error.code
        self._groups.touch_session(group.group_id, member)
        if (
            member.epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member))
        ):
            self._groups.watch_classic(group.group_id, member, _JOIN)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # LeaveGroup.

    def leave(self, request: LeaveGroupRequest) -> Result[LeaveGroupResponse]:
        """Remove classic members; each that cannot be removed gets an error code of its own."""
        group = self._groups.group(request.group_id)
        leaving: dict[str, Member] = {}
        responses: list[MemberResponse] = []
        for identity in request.members:
            response = MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id
            )
            responses.append(response)
            try:
                member = self._leaving(group, identity)
            except ApiError as error:
                response.error_code = error.code
                continue
            response.member_id = member.member_id
            if member.member_id in leaving:
                response.error_code = ErrorCode.UNKNOWN_MEMBER_ID
            leaving[member.member_id] = member
            logger.info(
                "group %s: classic member %s leaves: %s",
                group.group_id,
                member.member_id,
                identity.reason or "no reason given",
            )
        records = self._groups.remove(group, list(leaving.values())) if leaving else []
        return Result(records, LeaveGroupResponse(members=responses))

    def _leaving(self, group: ConsumerGroup, identity: MemberIdentity) -> Member:
        """Return the member that leaves; an administrator may name a static member by instance id only."""
        instance_id = identity.group_instance_id
        if instance_id is None:
            member = group.member(identity.member_id)
        else:
            found = group.static_member(instance_id)
            if found is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            if identity.member_id:
                check_not_fenced(found, identity.member_id, instance_id)
            member = found
        if not member.speaks_classic:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def _member(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int
    ) -> tuple[ConsumerGroup, Member, ClassicSide]:
        """Return the classic member that sends a request.

        Raises:
            ApiError: the sender is no classic member, or has another generation.
        """
        group = self._groups.group(group_id)
        if instance_id is None:
            member = group.member(member_id)
        else:
            found = group.static_member(instance_id)
            if found is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            check_not_fenced(found, member_id, instance_id)
            member = found
        if member.classic is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member.epoch != generation_id:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        return group, member, member.classic


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(bytes(request.protocols[0].metadata))
    except ProtocolError as error:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from None


def _changed(
    member: Member,
    request: JoinGroupRequest,
    requester: Requester,
    subscription: ConsumerProtocolSubscription,
) -> Member:
    """Return the member with the fields of its request; JoinGroup v0 has one timeout for both uses."""
    rebalance_timeout_ms = request.rebalance_timeout_ms
    updated = replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=member.rack_id if subscription.rack_id is None else subscription.rack_id,
        client_id=requester.client_id,
        client_host=requester.client_host,
        subscribed_names=frozenset(subscription.topics),
        subscribed_regex=None,
        rebalance_timeout_ms=(
            request.session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms
        ),
        classic=ClassicSide(
            request.session_timeout_ms,
            tuple(ClassicProtocolOffer(each.name, bytes(each.metadata)) for each in request.protocols),
        ),
    )
    return member if updated == member else updated


def _waits_for_others(group: ConsumerGroup, member: Member) -> bool:
    """Return whether another member still owns a partition of this member's target."""
    for topic_id, partitions in group.target_of(member.member_id).items():
        missing = partitions - member.assigned.get(topic_id, frozenset())
        if any(group.owner_of(topic_id, partition) is not None for partition in missing):
            return True
    return False
