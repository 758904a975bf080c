"""What the audit of a broker says, and what it never says."""

import json
import logging
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from kalda.broker.access.broker_audit import CHANGES, BrokerAudit
from kalda.broker.requests.handlers import HANDLERS
from kalda.common.api_keys import ApiKey
from kalda.common.logging import LINE_CHARACTERS_MAX
from kalda.common.types import uuid_to_text
from kalda.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kalda.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kalda.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kalda.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kalda.protocol.messages.metadata import MetadataRequest
from kalda.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from kalda.security.acl.model import AclOperation, ResourceType
from kalda.security.principal import KafkaPrincipal

ALICE: Any = SimpleNamespace(
    principal=KafkaPrincipal("User", "alice"), peer_address="10.0.0.7", listener="SASL_SSL"
)


@pytest.fixture
def events(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, logger="kalda.security.audit")
    return lambda: [json.loads(record.getMessage()) for record in caplog.records]


def test_logins_are_noted_with_their_outcome(events: Any) -> None:
    audit = BrokerAudit()
    audit.login(ALICE, None)
    audit.login(ALICE, "PLAIN: no")
    common = {"event": "login", "address": "10.0.0.7", "listener": "SASL_SSL"}
    assert [
        {**common, "outcome": "success", "principal": "User:alice"},
        {**common, "outcome": "failure", "reason": "PLAIN: no"},
    ] == events()


def test_denials_name_operation_and_resource(events: Any) -> None:
    BrokerAudit().denial(ALICE, AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, "kafka-cluster")
    [event] = events()
    assert ("denied", "IdempotentWrite", "Cluster:kafka-cluster") == (
        event["outcome"],
        event["operation"],
        event["resource"],
    )


def test_changes_name_what_they_change_and_no_secret(events: Any) -> None:
    audit = BrokerAudit()
    audit.change(ALICE, ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[CreatableTopic(name="t")]), [36])
    user = ScramCredentialUpsertion(name="bob", salt=b"salt", salted_password=b"secret")
    audit.change(
        ALICE, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, AlterUserScramCredentialsRequest(upsertions=[user]), []
    )
    audit.change(ALICE, ApiKey.METADATA, MetadataRequest(), [])
    created, altered = events()
    assert ("failure", ["t"], [36]) == (created["outcome"], created["resources"], created["errors"])
    assert ("success", ["bob"]) == (altered["outcome"], altered["resources"])
    assert "secret" not in json.dumps(altered)


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\U0001f600", '"'])
def test_long_names_are_cut_so_that_a_line_stays_json(events: Any, letter: str) -> None:
    """The formats of the process cut long lines, and a client could hide its deeds behind a long name."""
    audit = BrokerAudit()
    audit.denial(ALICE, AclOperation.READ, ResourceType.GROUP, letter * 30_000)
    many = [CreatableTopic(name=f"{number}{letter * 5_000}") for number in range(30)]
    audit.change(ALICE, ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=many), [17])
    denied, changed = events()
    assert denied["resource"].startswith(f"Group:{letter}")
    assert (20, [17]) == (len(changed["resources"]), changed["errors"])
    assert all(len(json.dumps(event)) <= LINE_CHARACTERS_MAX for event in (denied, changed))


def test_changes_without_names_are_noted_by_what_else_they_have(events: Any) -> None:
    audit = BrokerAudit()
    topic_id = uuid.UUID(int=7)
    by_id = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)])
    audit.change(ALICE, ApiKey.DELETE_TOPICS, by_id, [])
    of_group = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t")])
    audit.change(ALICE, ApiKey.OFFSET_DELETE, of_group, [])
    acls = DeleteAclsRequest(filters=[DeleteAclsFilter(resource_name_filter="payments")])
    audit.change(ALICE, ApiKey.DELETE_ACLS, acls, [])
    assert [[uuid_to_text(topic_id)], ["g", "t"], ["payments"]] == [event["resources"] for event in events()]


def test_a_flood_of_one_address_is_bounded_and_others_are_still_noted(events: Any) -> None:
    audit = BrokerAudit()
    for _ in range(10_000):
        audit.login(ALICE, "PLAIN: no")
    other: Any = SimpleNamespace(principal=ALICE.principal, peer_address="10.0.0.8", listener="SASL_SSL")
    audit.login(other, "PLAIN: no")
    audit.login(ALICE, None)
    found = events()
    assert len(found) < 20
    assert "success" == found[-1]["outcome"]
    assert "10.0.0.8" == found[-2]["address"]


def test_every_change_is_a_request_that_exists() -> None:
    served = {handler.key for handler in HANDLERS}
    not_yet = {ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.ALTER_REPLICA_LOG_DIRS}
    assert CHANGES <= served | not_yet
