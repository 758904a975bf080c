"""Implements the requests and responses of admin calls that list and delete groups and remove members.
Sans-IO."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.groups import GroupListing, GroupState, GroupType, MemberToRemove
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.routes import Broker, Coordinator
from kalda.clients.coordinator_lookup import CoordinatorType
from kalda.clients.errors import ClientError, UnsupportedApiError, error_for
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kalda.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kalda.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

COORDINATOR_OF_GROUP: Final[Coordinator[str]] = Coordinator(CoordinatorType.GROUP, lambda group_id: group_id)
BROKER_WITH_ID: Final[Broker[int]] = Broker(lambda broker_id: broker_id)

_STATES_FROM: Final = 4
_TYPES_FROM: Final = 5
_MANY_MEMBERS_FROM: Final = 3


class ListGroups(AdminOperation[int, list[GroupListing]]):
    """Lists the groups that each broker coordinates; the keys are broker ids."""

    title = "list groups of broker"
    route = BROKER_WITH_ID
    # The response holds a part of the groups only.
    retry_codes = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE})

    def __init__(self, states: Collection[GroupState], types: Collection[GroupType]) -> None:
        self._states: Final = states
        self._types: Final = types

    def requests(
        self, keys: Sequence[int], context: RequestContext
    ) -> Iterable[AdminRequest[int, list[GroupListing]]]:
        """Ask one broker."""
        version = context.versions.latest(ApiKey.LIST_GROUPS)
        if self._states and version < _STATES_FROM:
            raise UnsupportedApiError(
                f"{self.title} {context.broker_id}: brokers before 2.6 do not filter by state; "
                "call without `states`"
            )
        # Brokers that know no types have classic groups only.
        has_types = version >= _TYPES_FROM
        is_excluded = bool(self._types) and not has_types and GroupType.CLASSIC not in self._types
        message = ListGroupsRequest(
            states_filter=[each.value for each in self._states],
            types_filter=[each.value for each in self._types] if has_types else [],
        )

        def read(response: ListGroupsResponse, answers: Answers[int, list[GroupListing]]) -> None:
            (broker_id,) = keys
            if response.error_code:
                answers.fail(broker_id, response.error_code)
                return
            listings = [
                GroupListing(
                    each.group_id,
                    each.protocol_type,
                    GroupState.of(each.group_state) if version >= _STATES_FROM else None,
                    GroupType.of(each.group_type) if has_types else None,
                )
                for each in response.groups
            ]
            answers.succeed(broker_id, [] if is_excluded else listings)

        yield AdminRequest.of(message, ListGroupsResponse, keys, read)


class DeleteGroups(AdminOperation[str, None]):
    """Deletes groups without members, and their offsets (KIP-229)."""

    title = "delete group"
    route = COORDINATOR_OF_GROUP

    def requests(self, keys: Sequence[str], context: RequestContext) -> Iterable[AdminRequest[str, None]]:
        """Name all groups of one coordinator."""
        message = DeleteGroupsRequest(groups_names=list(keys))
        yield AdminRequest.of(message, DeleteGroupsResponse, keys, self._read)

    @staticmethod
    def _read(response: DeleteGroupsResponse, answers: Answers[str, None]) -> None:
        for each in response.results:
            if each.error_code:
                answers.fail(each.group_id, each.error_code)
            else:
                answers.succeed(each.group_id, None)


class RemoveMembers(AdminOperation[str, Outcomes[MemberToRemove, None]]):
    """Removes members from classic groups, which rebalance without waiting for their session time-out."""

    title = "remove members from group"
    route = COORDINATOR_OF_GROUP

    def __init__(self, members: Mapping[str, Iterable[MemberToRemove]], reason: str | None) -> None:
        self.members: Final = {group_id: tuple(each) for group_id, each in members.items()}
        self._reason: Final = reason

    def requests(
        self, keys: Sequence[str], context: RequestContext
    ) -> Iterable[AdminRequest[str, Outcomes[MemberToRemove, None]]]:
        """Send one request for each group."""
        version = context.versions.latest(ApiKey.LEAVE_GROUP)
        for group_id in keys:
            yield self._request(group_id, version)

    def _request(self, group_id: str, version: int) -> AdminRequest[str, Outcomes[MemberToRemove, None]]:
        members = self.members[group_id]
        if version >= _MANY_MEMBERS_FROM:
            identities = [
                MemberIdentity(
                    member_id=each.member_id, group_instance_id=each.group_instance_id, reason=self._reason
                )
                for each in members
            ]
            message = LeaveGroupRequest(group_id=group_id, members=identities)
        elif len(members) == 1 and members[0].group_instance_id is None:
            message = LeaveGroupRequest(group_id=group_id, member_id=members[0].member_id)
        else:
            raise UnsupportedApiError(
                f"{self.what(group_id)}: brokers before 2.4 remove one member at a time, by member id"
            )

        def read(response: LeaveGroupResponse, answers: Answers[str, Outcomes[MemberToRemove, None]]) -> None:
            if response.error_code:
                answers.fail(group_id, response.error_code)
                return
            by_instance = {each.group_instance_id: each.error_code for each in response.members}
            by_member = {each.member_id: each.error_code for each in response.members}
            errors: dict[MemberToRemove, ClientError] = {}
            for each in members:
                instance = each.group_instance_id
                # Brokers before 2.4 return no list; the one member is removed if there is no error above.
                code = by_member.get(each.member_id, 0) if instance is None else by_instance.get(instance, 0)
                if code:
                    errors[each] = error_for(ErrorCode.of(code), f"remove {each} from group {group_id}")
            answers.succeed(
                group_id, Outcomes({each: None for each in members if each not in errors}, errors)
            )

        return AdminRequest.of(message, LeaveGroupResponse, (group_id,), read)
