"""Implements the admin client's operations that list and delete groups, and the values for groups.

`group_members` and `group_offsets` have the other operations. Names of values are those of Java's client.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from kalda.clients.admin.acls import AclOperation
from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.outcomes import Listing, Outcomes
from kalda.clients.admin.routes import BROKER_WITH_ID, COORDINATOR_OF_GROUP
from kalda.clients.errors import UnsupportedApiError
from kalda.clients.reprs import fields_html
from kalda.clients.values import OffsetAndMetadata
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.common.types import TopicPartition
from kalda.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kalda.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

FetchedOffsets: TypeAlias = Outcomes[TopicPartition, OffsetAndMetadata | None]
"""The committed offsets of a group by partition; None for a partition without one."""

PartitionOutcomes: TypeAlias = Outcomes[TopicPartition, None]
"""What became of each partition of a group."""


@public
class GroupType(StrEnum):
    """The protocol that a group uses; the values are the protocol's words."""

    UNKNOWN = "Unknown"
    CLASSIC = "Classic"
    CONSUMER = "Consumer"
    SHARE = "Share"
    STREAMS = "Streams"

    @classmethod
    def of(cls, word: str) -> "GroupType":
        """Return the type with this name in any case; UNKNOWN for one that Kalda does not know."""
        return _TYPES.get(word.lower(), cls.UNKNOWN)


@public
class GroupState(StrEnum):
    """The state of a group; the values are the protocol's words."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"

    @classmethod
    def of(cls, word: str) -> "GroupState":
        """Return the state with this name in any case; UNKNOWN for one that Kalda does not know."""
        return _STATES.get(word.lower(), cls.UNKNOWN)


_TYPES: Final = {each.value.lower(): each for each in GroupType}
_STATES: Final = {each.value.lower(): each for each in GroupState}


@public
@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group that exists."""

    group_id: str
    protocol_type: str
    """``consumer`` for consumers, ``connect`` for Kafka Connect, empty if the group only stores offsets."""
    state: GroupState | None
    """None from brokers before 2.6 (KIP-518)."""
    type: GroupType | None
    """None from brokers before 3.8 (KIP-848)."""

    @property
    def is_simple_consumer_group(self) -> bool:
        """Whether the group only stores offsets and has no protocol for members."""
        return not self.protocol_type and self.type in (None, GroupType.CLASSIC)


@public
@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group."""

    member_id: str
    group_instance_id: str | None
    """The id of a static member (KIP-345)."""
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]
    """The partitions that it has; empty while the group rebalances, and if its protocol is no consumer's."""
    target_assignment: frozenset[TopicPartition] | None = None
    """The partitions that it is to have; None in a classic group."""
    member_epoch: int | None = None
    """None in a classic group."""
    is_classic: bool | None = None
    """Whether a member of a consumer group still uses the classic protocol; None if not known (KIP-1099)."""
    rack_id: str | None = None
    subscribed_topics: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None


@public
@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """A group of consumers, of the classic or of the consumer protocol (KIP-848)."""

    group_id: str
    is_simple_consumer_group: bool
    """Whether the group only stores offsets and has no protocol for members."""
    members: tuple[MemberDescription, ...]
    partition_assignor: str
    """The assignor in use; empty while there is none."""
    type: GroupType
    state: GroupState
    coordinator_id: int
    """The broker that coordinates the group."""
    authorized_operations: frozenset[AclOperation] | None = None
    """What this client may do with the group; None if that was not asked for."""
    group_epoch: int | None = None
    """None in a classic group."""
    target_assignment_epoch: int | None = None
    """None in a classic group."""

    _repr_html_ = fields_html


@public
@dataclass(frozen=True, slots=True)
class ClassicGroupDescription:
    """A group of the classic protocol with any protocol type, e.g. one of Kafka Connect."""

    group_id: str
    protocol_type: str
    protocol_data: str
    """The protocol in use, for consumers the assignor; empty while there is none."""
    members: tuple[MemberDescription, ...]
    state: GroupState
    coordinator_id: int
    """The broker that coordinates the group."""
    authorized_operations: frozenset[AclOperation] | None = None
    """What this client may do with the group; None if that was not asked for."""

    @property
    def is_simple_consumer_group(self) -> bool:
        """Whether the group only stores offsets and has no protocol for members."""
        return not self.protocol_type

    _repr_html_ = fields_html


@public
@dataclass(frozen=True, slots=True)
class MemberToRemove:
    """A member to remove from a group: a static one by its instance id, another one by its member id."""

    member_id: str = ""
    group_instance_id: str | None = None

    def __str__(self) -> str:
        if self.group_instance_id is not None:
            return f"static member {self.group_instance_id}"
        return f"member {self.member_id}"


class GroupMethods(AdminMethods):
    """Lists and deletes groups."""

    async def list_groups(
        self,
        *,
        states: Collection[GroupState] = (),
        types: Collection[GroupType] = (),
        protocol_types: Collection[str] = (),
        timeout_ms: int | None = None,
    ) -> Listing[GroupListing]:
        """List the groups of all brokers, of any protocol.

        Args:
            states: Only groups in one of these states (brokers 2.6 and newer, KIP-518); empty for all.
            types: Only groups of one of these types (KIP-848); empty for all. Brokers before 3.8 have classic
                groups only.
            protocol_types: Only groups with one of these protocol types, e.g. ``consumer``; empty for all.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            The groups, sorted by id, and the errors of brokers that did not answer.

        Raises:
            ClientError: no broker can be reached.
        """
        brokers = await self._open_runner().broker_ids(timeout_ms)
        answers = await self._run(ListGroups(states, types), brokers, timeout_ms, outcomes=True)
        found = {
            each.group_id: each
            for listings in answers.results.values()
            for each in listings
            if not protocol_types or each.protocol_type in protocol_types
        }
        return Listing((found[group_id] for group_id in sorted(found)), answers.errors)

    async def list_consumer_groups(
        self,
        *,
        states: Collection[GroupState] = (),
        types: Collection[GroupType] = (),
        timeout_ms: int | None = None,
    ) -> Listing[GroupListing]:
        """List the groups of consumers, and groups that only store offsets.

        Args:
            states: Only groups in one of these states (brokers 2.6 and newer, KIP-518); empty for all.
            types: CLASSIC or CONSUMER for groups of that protocol only; empty for both.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            The groups, sorted by id, and the errors of brokers that did not answer.

        Raises:
            ClientError: no broker can be reached.
        """
        return await self.list_groups(
            states=states,
            types=types or (GroupType.CLASSIC, GroupType.CONSUMER),
            protocol_types=("", CONSUMER_PROTOCOL_TYPE),
            timeout_ms=timeout_ms,
        )

    async def delete_consumer_groups(
        self, group_ids: Iterable[str], *, outcomes: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, None]:
        """Delete groups without members, and their committed offsets (KIP-229).

        Args:
            group_ids: The groups, of any protocol.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By group id, None or the error: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND and others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        return await self._run(DeleteGroups(), group_ids, timeout_ms, outcomes=outcomes)


_STATES_FROM: Final = 4
_TYPES_FROM: Final = 5


class ListGroups(AdminOperation[int, list[GroupListing]]):
    """Lists the groups that each broker coordinates; the keys are broker ids."""

    title = "list groups of broker"
    route = BROKER_WITH_ID
    # The response holds a part of the groups only.
    retry_codes = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE})

    def __init__(self, states: Collection[GroupState], types: Collection[GroupType]) -> None:
        self._states: Final = states
        self._types: Final = types

    @override
    def requests(
        self, keys: Sequence[int], context: RequestContext
    ) -> Iterable[AdminRequest[int, list[GroupListing]]]:
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
