"""Requests that mean all there is, and what a translator refuses, without a broker."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import pytest

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID
from kalda.protocol import codec, registry
from kalda.protocol.framing import SIZE_BYTES, frame
from kalda.protocol.headers import RequestHeader, read_request_header, request_header, response_header
from kalda.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kalda.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kalda.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
)
from kalda.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from kalda.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kalda.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kalda.protocol.namespaces.namespace import Namespace
from kalda.protocol.namespaces.translator import NamespaceError, RequestNote, Translator
from kalda.protocol.schema import Message

M = TypeVar("M", bound=Message)

LITERAL, PREFIXED, ANY = 3, 4, 1


def acl(name: str, pattern_type: int = LITERAL, principal: str = "User:ns-7-a") -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=2,
        resource_name=name,
        pattern_type=pattern_type,
        principal=principal,
        host="*",
        operation=3,
        permission_type=3,
    )


class FakeBroker:
    """A broker with topics and ACLs of several namespaces."""

    def __init__(self, acls: Iterable[DeleteAclsMatchingAcl] | None = None) -> None:
        self.acls = acls

    def topic_name(self, topic_id: UUID) -> str | None:
        return None

    def partition_counts(self, prefix: str) -> Mapping[str, int]:
        counts = {"ns-7-a": 2, "ns-8-a": 3, "other": 1}
        return {name: count for name, count in counts.items() if name.startswith(prefix)}

    def matching_acls(self, wanted: DeleteAclsFilter) -> Iterable[DeleteAclsMatchingAcl] | None:
        return self.acls


class Exchange:
    """One request and its response through a translator of the namespace 7."""

    def __init__(self, broker: FakeBroker | None = None) -> None:
        self.translator = Translator(Namespace("7"), broker or FakeBroker())
        self.note: RequestNote

    def request(self, message: M, version: int) -> M:
        key = message.SCHEMA.api_key
        assert key is not None
        sent = request_header(
            RequestHeader(key, version, 5, "app"), registry.request_header_version(key, version)
        )
        frame = memoryview(bytearray(sent + codec.encode(message, version)))
        header, body = read_request_header(frame)
        translated = self.translator.request(header, body, frame)
        assert translated is not None
        frame, self.note = translated
        header, body = read_request_header(frame)
        assert "app" == header.client_id
        return codec.decode(type(message), version, frame, body)

    def response(self, message: M, version: int) -> M:
        key = message.SCHEMA.api_key
        assert key is not None
        head = response_header(5, registry.response_header_version(key, version))
        chunks = self.translator.response(
            self.note, [frame([head, codec.encode(message, version)])], has_masked=False
        )
        data = b"".join(chunks)  # type: ignore[arg-type]  # nothing is in a file
        return codec.decode(type(message), version, data, SIZE_BYTES + len(head))


def test_a_listing_has_the_namespaces_own() -> None:
    """Names of others are left out; those that remain are plain."""
    exchange = Exchange()
    exchange.request(ListGroupsRequest(), 4)
    listed = exchange.response(
        ListGroupsResponse(groups=[ListedGroup(group_id=name) for name in ("g", "ns-8-g", "ns-7-g")]), 4
    )
    assert ["g"] == [each.group_id for each in listed.groups]


def test_pages_of_all_topics_begin_and_end_with_the_namespace() -> None:
    """The broker sorts by stored names, so the namespace's topics are neighbours."""
    exchange = Exchange()
    request = exchange.request(DescribeTopicPartitionsRequest(), 0)
    assert request.cursor is not None
    assert "ns-7-" == request.cursor.topic_name
    page = exchange.response(
        DescribeTopicPartitionsResponse(
            topics=[DescribeTopicPartitionsResponseTopic(name=name) for name in ("ns-7-a", "ns-8-a")],
            next_cursor=Cursor(topic_name="ns-8-b"),
        ),
        0,
    )
    assert ["a"] == [each.name for each in page.topics]
    assert page.next_cursor is None
    request = exchange.request(DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="b")), 0)
    assert request.cursor is not None
    assert "ns-7-b" == request.cursor.topic_name


def test_an_election_for_all_is_for_the_namespaces_partitions() -> None:
    """Others must keep their leaders; and partitions without an election do not appear, as for all."""
    exchange = Exchange()
    request = exchange.request(ElectLeadersRequest(topic_partitions=None), 2)
    assert request.topic_partitions is not None
    assert [("ns-7-a", [0, 1])] == [(each.topic, each.partitions) for each in request.topic_partitions]
    results = [
        PartitionResult(partition_id=0, error_code=ErrorCode.ELECTION_NOT_NEEDED),
        PartitionResult(partition_id=1, error_message="ns-7-a-1 has a leader"),
    ]
    response = exchange.response(
        ElectLeadersResponse(
            replica_election_results=[ReplicaElectionResult(topic="ns-7-a", partition_result=results)]
        ),
        2,
    )
    [found] = response.replica_election_results
    assert "a" == found.topic
    assert [(1, "a-1 has a leader")] == [(p.partition_id, p.error_message) for p in found.partition_result]


def test_acls_are_deleted_one_by_one() -> None:
    """A filter that matches everything must not delete the ACLs of others."""
    acls = [acl("ns-7-t"), acl("ns-7-", PREFIXED), acl("ns-8-t"), acl("t"), acl("ns-7-t", principal="User:a")]
    exchange = Exchange(FakeBroker(acls))
    everything = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        operation=1,
        permission_type=1,
    )
    request = exchange.request(DeleteAclsRequest(filters=[everything]), 3)
    assert [("ns-7-t", LITERAL), ("ns-7-", PREFIXED)] == [
        (each.resource_name_filter, each.pattern_type_filter) for each in request.filters
    ]
    response = exchange.response(
        DeleteAclsResponse(
            filter_results=[DeleteAclsFilterResult(matching_acls=[acl]) for acl in acls[:2]],
        ),
        3,
    )
    [result] = response.filter_results
    assert [("t", LITERAL, "User:a"), ("*", LITERAL, "User:a")] == [
        (each.resource_name, each.pattern_type, each.principal) for each in result.matching_acls
    ]


@pytest.mark.parametrize(("wanted", "names"), [(LITERAL, ["ns-7-t", "ns-7-"]), (PREFIXED, ["ns-7-p"])])
def test_a_filter_for_literal_patterns_deletes_the_wildcard(wanted: int, names: list[str]) -> None:
    """The namespace's ``*`` is kept as a prefix and is none for its clients."""
    exchange = Exchange(FakeBroker([acl("ns-7-t"), acl("ns-7-", PREFIXED), acl("ns-7-p", PREFIXED)]))
    request = exchange.request(
        DeleteAclsRequest(filters=[DeleteAclsFilter(resource_name_filter=None, pattern_type_filter=wanted)]),
        3,
    )
    assert names == [each.resource_name_filter for each in request.filters]


def test_a_filter_that_deletes_nothing_is_still_asked() -> None:
    """The broker decides whether the client may delete ACLs at all."""
    exchange = Exchange(FakeBroker([acl("ns-8-t")]))
    request = exchange.request(DeleteAclsRequest(filters=[DeleteAclsFilter()]), 3)
    [found] = request.filters
    assert "User:ns-7-" == found.principal_filter


def test_acls_are_described_by_their_plain_patterns() -> None:
    """All of them are asked for, and those of the other kind left out."""
    exchange = Exchange()
    request = exchange.request(DescribeAclsRequest(resource_name_filter=None, pattern_type_filter=LITERAL), 3)
    assert ANY == request.pattern_type_filter

    def resource(name: str, pattern_type: int, principal: str) -> DescribeAclsResource:
        return DescribeAclsResource(
            resource_type=2,
            resource_name=name,
            pattern_type=pattern_type,
            acls=[AclDescription(principal=principal)],
        )

    response = exchange.response(
        DescribeAclsResponse(
            resources=[
                resource("ns-7-", PREFIXED, "User:ns-7-*"),
                resource("ns-7-p", PREFIXED, "User:ns-7-a"),
                resource("ns-7-t", LITERAL, "User:a"),
                resource("ns-8-t", LITERAL, "User:ns-8-a"),
            ]
        ),
        3,
    )
    [found] = response.resources
    assert ("*", LITERAL, "User:*") == (found.resource_name, found.pattern_type, found.acls[0].principal)


def test_a_quota_of_a_foreign_user_is_left_out_whole() -> None:
    """Without its user it would be a quota of the client id."""
    exchange = Exchange()
    exchange.request(DescribeClientQuotasRequest(), 1)

    def entry(**names: Any) -> EntryData:
        return EntryData(
            entity=[
                EntityData(entity_type=kind.replace("_", "-"), entity_name=name)
                for kind, name in names.items()
            ]
        )

    response = exchange.response(
        DescribeClientQuotasResponse(
            entries=[
                entry(user="ns-7-a", client_id="ns-7-"),
                entry(user="ns-8-a", client_id="ns-8-app"),
                entry(user=None),
                entry(ip="10.0.0.1"),
            ]
        ),
        1,
    )
    assert response.entries is not None
    assert [[("user", "a"), ("client-id", None)], [("ip", "10.0.0.1")]] == [
        [(part.entity_type, part.entity_name) for part in each.entity] for each in response.entries
    ]


def test_requests_of_brokers_are_refused() -> None:
    """A client of a namespace could stop the replicas of all others."""
    header = RequestHeader(ApiKey.STOP_REPLICA, 0, 1, None)
    with pytest.raises(NamespaceError, match="StopReplica is a request of brokers"):
        Exchange().translator.request(header, 0, memoryview(b""))


@pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.DELETE_TOPICS])
def test_a_malformed_request_is_refused(key: ApiKey) -> None:
    """It must not pass with the names that it has."""
    header = RequestHeader(key, 5, 1, None)
    with pytest.raises(NamespaceError, match="cannot be translated"):
        Exchange().translator.request(header, 0, memoryview(bytearray(b"\x00\x00\x00")))


@pytest.mark.parametrize(("key", "version"), [(ApiKey.API_VERSIONS, 3), (999, 0), (ApiKey.METADATA, 99)])
def test_what_names_nothing_passes(key: int, version: int) -> None:
    """The broker answers or refuses what it would answer or refuse to any client."""
    header = RequestHeader(key, version, 1, None)
    assert Exchange().translator.request(header, 0, memoryview(b"")) is None
