"""What the audit of a broker says, and what it never says."""

import json
import logging
import uuid
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from kalda.broker.requests.handlers import HANDLERS
from kalda.broker.security.broker_audit import BrokerAudit
from kalda.common.logging import LINE_CHARACTERS_MAX
from kalda.common.types import uuid_to_text
from kalda.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData
from kalda.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kalda.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kalda.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kalda.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kalda.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kalda.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kalda.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from kalda.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kalda.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kalda.protocol.schema import Message
from kalda.security.acl.model import AclOperation, ResourceType
from kalda.security.principal import KafkaPrincipal

ALICE: Any = SimpleNamespace(
    principal=KafkaPrincipal("User", "alice"), peer_address="10.0.0.7", listener="SASL_SSL"
)


def change(
    audit: BrokerAudit, request: Message, error_codes: Collection[int] = (), client: Any = ALICE
) -> None:
    """Note a request as the dispatcher does, by what its handler declares."""
    (handler,) = [each for each in HANDLERS if each.key == request.SCHEMA.api_key]
    assert handler.audit is not None
    audit.change(client, handler.key, handler.audit(request), error_codes)


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
    change(audit, CreateTopicsRequest(topics=[CreatableTopic(name="t")]), [36])
    user = ScramCredentialUpsertion(name="bob", salt=b"salt", salted_password=b"secret")
    change(audit, AlterUserScramCredentialsRequest(upsertions=[user]))
    created, altered = events()
    assert ("failure", ["t"], [36]) == (created["outcome"], created["resources"], created["errors"])
    assert ("success", ["bob"]) == (altered["outcome"], altered["resources"])
    assert "secret" not in json.dumps(altered)


@pytest.mark.parametrize("character", ["x", "\n", "\0", "ä", "\U0001f600", '"'])
def test_what_clients_name_cannot_break_or_fill_a_line(
    events: Any, character: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Formatters cut lines of 4,000 characters, which are then not JSON; requests may have 100 MB."""
    audit = BrokerAudit()
    client: Any = SimpleNamespace(
        principal=KafkaPrincipal("User", character * 10_000), peer_address="10.0.0.7", listener="SASL_SSL"
    )
    names = [f"{character * length}{index}" for index, length in enumerate((1, 200, 30_000) * 30)]
    audit.login(client, "no " + character * 1_000_000)
    audit.denial(client, AclOperation.WRITE, ResourceType.GROUP, character * 1_000_000)
    topics = [CreatableTopic(name=name) for name in names]
    change(audit, CreateTopicsRequest(topics=topics), [36], client)
    failed, denied, changed = events()
    assert failed["reason"].endswith(" more characters)")
    assert denied["resource"].endswith(" more characters)")
    assert denied["principal"].startswith("User:" + character)
    assert f"{character}0" == changed["resources"][0]
    assert changed["resources"][-1].endswith(" more")
    assert [36] == changed["errors"]
    for record in caplog.records:
        line = record.getMessage()
        assert len(line) < LINE_CHARACTERS_MAX
        assert line.isascii()
        assert line.isprintable()


def test_changes_without_names_are_noted_by_what_else_they_have(events: Any) -> None:
    audit = BrokerAudit()
    topic_id = uuid.UUID(int=7)
    by_id = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)])
    change(audit, by_id)
    of_group = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t")])
    change(audit, of_group)
    acls = DeleteAclsRequest(filters=[DeleteAclsFilter(resource_name_filter="payments")])
    change(audit, acls)
    assert [[uuid_to_text(topic_id)], ["g", "t"], ["payments"]] == [event["resources"] for event in events()]


def test_every_change_of_named_things_names_them(events: Any) -> None:
    """An entry that says only that something was altered is of no use after an accident."""
    audit = BrokerAudit()
    change(audit, UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="transaction.version")]))
    moved = AlterReplicaLogDir(path="/data/2", topics=[AlterReplicaLogDirTopic(name="t", partitions=[0])])
    change(audit, AlterReplicaLogDirsRequest(dirs=[moved]))
    change(audit, ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])]))
    quota = EntryData(
        entity=[
            EntityData(entity_type="user", entity_name="alice"),
            EntityData(entity_type="client-id", entity_name=None),
        ]
    )
    change(audit, AlterClientQuotasRequest(entries=[quota]))
    change(audit, RenewDelegationTokenRequest(hmac=b"secret"))
    assert [["transaction.version"], ["t"], ["t"], ["user:alice,client-id:<default>"], None] == [
        event.get("resources") for event in events()
    ]


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


def test_events_above_the_limit_are_counted_in_json(events: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if nothing happens any more: a flood that has ended must not keep its size to itself."""
    now = 100.0
    monkeypatch.setattr("kalda.security.audit.monotonic", lambda: now)
    audit = BrokerAudit()
    for _ in range(10_000):
        audit.login(ALICE, "PLAIN: no")
    now += 10
    audit.report_suppressed()
    audit.report_suppressed()
    found = events()
    assert 11 == len(found)
    event = {"event": "login", "outcome": "failure", "address": "10.0.0.7"}
    assert {**event, "suppressed": 9_990} == found[-1]
