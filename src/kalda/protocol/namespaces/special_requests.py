"""The requests whose translation is more than that of their names: those that mean all there is.

`before` changes a request whose names are translated already, and returns what `after` needs to know when the
response comes, whose names are translated too.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, cast

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.create_topics import CreateTopicsResponse
from kalda.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kalda.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kalda.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from kalda.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from kalda.protocol.namespaces.kinds import (
    ACL_RESOURCE,
    ANY_PATTERN,
    FOREIGN,
    LITERAL_PATTERN,
    PREFIXED_PATTERN,
    PRINCIPAL,
    TopicNames,
)
from kalda.protocol.namespaces.namespace import Namespace
from kalda.protocol.schema import Message

TOPIC_LENGTH_MAX: Final = 249
"""Characters of a topic's name, with the prefix."""


class Broker(TopicNames, Protocol):
    """The port by which a translator asks its broker."""

    def partition_counts(self, prefix: str) -> Mapping[str, int]:
        """Return the number of partitions of each topic whose name begins with a prefix."""

    def matching_acls(self, wanted: DeleteAclsFilter) -> Iterable[DeleteAclsMatchingAcl] | None:
        """Return the ACLs that a filter matches; None if ACLs are switched off or the filter is wrong."""


class _Special(NamedTuple):
    before: Callable[[Namespace, Broker, Any, int], object]
    after: Callable[[Namespace, Broker, Any, Any], None]


def before(space: Namespace, broker: Broker, request: Message, version: int) -> object:
    """Change a request that means all there is into one that means all of the namespace."""
    special = _SPECIAL.get(cast(ApiKey, request.SCHEMA.api_key))
    return None if special is None else special.before(space, broker, request, version)


def after(space: Namespace, broker: Broker, response: Message, note: object) -> None:
    """Give the response the form that the client's request asks for; `note` is what `before` returned."""
    special = _SPECIAL.get(cast(ApiKey, response.SCHEMA.api_key))
    if special is not None:
        special.after(space, broker, response, note)


# DescribeTopicPartitions: a page of all topics begins with those of the namespace, which are neighbours. The
# cursor of a page that ends behind them is foreign, and so left out.


def _begin_at_prefix(space: Namespace, _: Broker, request: DescribeTopicPartitionsRequest, __: int) -> None:
    if not request.topics and (request.cursor is None or not request.cursor.topic_name):
        request.cursor = Cursor(topic_name=space.prefix, partition_index=0)


def _nothing(space: Namespace, broker: Broker, response: object, note: object) -> None:
    """The names were all there was to translate."""


# ElectLeaders: an election for all partitions must not reach other namespaces.


def _elect_own(space: Namespace, broker: Broker, request: ElectLeadersRequest, _: int) -> bool:
    if request.topic_partitions is not None:
        return False
    request.topic_partitions = [
        TopicPartitions(topic=name, partitions=list(range(count)))
        for name, count in broker.partition_counts(space.prefix).items()
    ]
    return True


def _leave_out_not_needed(_: Namespace, __: Broker, response: ElectLeadersResponse, was_all: object) -> None:
    """Show the partitions with an election, as a broker does where all were meant."""
    if not was_all:
        return
    for topic in response.replica_election_results:
        topic.partition_result = [
            each for each in topic.partition_result if each.error_code != ErrorCode.ELECTION_NOT_NEEDED
        ]
    response.replica_election_results = [
        topic for topic in response.replica_election_results if topic.partition_result
    ]


# ACLs: a filter for literal patterns of any name has to find the namespace's ``*`` as well, which the broker
# keeps as a prefix, and the other way round. DeleteAcls gets a filter for each ACL that it is to delete.


def _widen(space: Namespace, _: Broker, request: DescribeAclsRequest, version: int) -> int:
    wanted = request.pattern_type_filter
    if (
        request.resource_name_filter is None
        and version >= 1
        and wanted in (LITERAL_PATTERN, PREFIXED_PATTERN)
    ):
        request.pattern_type_filter = ANY_PATTERN
    return wanted


def _narrow(_: Namespace, __: Broker, response: DescribeAclsResponse, wanted: object) -> None:
    is_narrow = wanted in (LITERAL_PATTERN, PREFIXED_PATTERN)
    response.resources = [
        each for each in response.resources if each.acls and (not is_narrow or each.pattern_type == wanted)
    ]


def _one_by_one(
    space: Namespace, broker: Broker, request: DeleteAclsRequest, version: int
) -> list[int] | None:
    """Return how many filters stand for each one of the request."""
    counts, filters = [], []
    for each in request.filters:
        wanted = each.pattern_type_filter
        if (
            each.resource_name_filter is None
            and version >= 1
            and wanted in (LITERAL_PATTERN, PREFIXED_PATTERN)
        ):
            each.pattern_type_filter = ANY_PATTERN
        found = broker.matching_acls(each)
        if found is None:
            return None
        each.pattern_type_filter = wanted
        exact = [_exact(acl) for acl in found if _is_own(space, broker, acl, each, wanted)]
        # One that matches nothing, so that the broker still decides whether the client may delete.
        filters += exact or [_of_nothing(space, each)]
        counts.append(max(1, len(exact)))
    request.filters = filters
    return counts


def _is_own(
    space: Namespace, broker: Broker, acl: DeleteAclsMatchingAcl, wanted: DeleteAclsFilter, pattern_type: int
) -> bool:
    plain = DeleteAclsMatchingAcl(
        resource_type=acl.resource_type, resource_name=acl.resource_name, pattern_type=acl.pattern_type
    )
    if ACL_RESOURCE.plain(space, broker, acl.resource_name, plain) is FOREIGN:
        return False
    if PRINCIPAL.plain(space, broker, acl.principal, acl) is FOREIGN:
        return False
    is_narrow = wanted.resource_name_filter is None and pattern_type in (LITERAL_PATTERN, PREFIXED_PATTERN)
    return not is_narrow or plain.pattern_type == pattern_type


def _exact(acl: DeleteAclsMatchingAcl) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=acl.resource_type,
        resource_name_filter=acl.resource_name,
        pattern_type_filter=acl.pattern_type,
        principal_filter=acl.principal,
        host_filter=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def _of_nothing(space: Namespace, wanted: DeleteAclsFilter) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=wanted.resource_type_filter,
        resource_name_filter=space.prefix,
        pattern_type_filter=LITERAL_PATTERN,
        principal_filter=f"User:{space.prefix}",
        host_filter=wanted.host_filter,
        operation=wanted.operation,
        permission_type=wanted.permission_type,
    )


def _together(_: Namespace, __: Broker, response: DeleteAclsResponse, counts: object) -> None:
    if counts is None:
        return
    results = iter(response.filter_results)
    together = []
    for count in cast("list[int]", counts):
        first = next(results, None)
        if first is None:
            break
        for another in islice(results, count - 1):
            first.matching_acls += another.matching_acls
            if not first.error_code:
                first.error_code, first.error_message = another.error_code, another.error_message
        together.append(first)
    response.filter_results = together


# CreateTopics: the broker's limit is that of the stored name, which the client does not see.


def _no_note(space: Namespace, broker: Broker, request: object, version: int) -> None:
    """The names were all there was to translate."""


def _say_limit(space: Namespace, _: Broker, response: CreateTopicsResponse, __: object) -> None:
    limit = TOPIC_LENGTH_MAX - len(space.prefix)
    for topic in response.topics:
        if topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION and len(topic.name) > limit:
            topic.error_message = (
                f"Topic name is invalid: it has {len(topic.name)} characters, and in the namespace "
                f"{space.name} at most {limit} are allowed"
            )


_SPECIAL: Final[dict[ApiKey, _Special]] = {
    ApiKey.CREATE_TOPICS: _Special(_no_note, _say_limit),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _Special(_begin_at_prefix, _nothing),
    ApiKey.ELECT_LEADERS: _Special(_elect_own, _leave_out_not_needed),
    ApiKey.DESCRIBE_ACLS: _Special(_widen, _narrow),
    ApiKey.DELETE_ACLS: _Special(_one_by_one, _together),
}
