"""Which quota bounds a client, who shares it, and that the number of clients is bounded."""

import itertools

import pytest

from kalda.security.quota import client_quotas
from kalda.security.quota.client_quotas import ClientQuotas
from kalda.security.quota.entity import DEFAULT, QuotaEntity
from kalda.security.quota.rate import Window
from kalda.security.quota.settings import PRODUCER_BYTE_RATE

ORDER = [
    QuotaEntity("alice", "app"),
    QuotaEntity("alice", DEFAULT),
    QuotaEntity("alice"),
    QuotaEntity(DEFAULT, "app"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT),
    QuotaEntity(client_id="app"),
    QuotaEntity(client_id=DEFAULT),
]
"""From the first that decides for the user alice with the client id app."""

SHARED_BY = [
    ("alice", "app"),
    ("alice", "app"),
    ("alice", None),
    ("alice", "app"),
    ("alice", "app"),
    ("alice", None),
    (None, "app"),
    (None, "app"),
]


@pytest.fixture
def quotas() -> ClientQuotas:
    return ClientQuotas(Window(), Window())


def rate(value: float) -> dict[str, float]:
    return {PRODUCER_BYTE_RATE: value}


@pytest.mark.parametrize("mask", range(1, 256))
def test_first_entity_of_the_order_decides(quotas: ClientQuotas, mask: int) -> None:
    present = [index for index in range(8) if mask & 1 << index]
    for index in present:
        quotas.set(ORDER[index], rate(index + 1))
    share = quotas.client("alice", "app", 0.0).producer
    assert share is not None
    assert (SHARED_BY[present[0]], present[0] + 1.0) == (share.key, share.limit)


def test_entity_without_this_kind_of_quota_does_not_decide(quotas: ClientQuotas) -> None:
    quotas.set(QuotaEntity("alice"), {"consumer_byte_rate": 5.0})
    quotas.set(QuotaEntity(client_id="app"), rate(7))
    client = quotas.client("alice", "app", 0.0)
    assert client.producer is not None
    assert client.consumer is not None
    assert ((None, "app"), ("alice", None)) == (client.producer.key, client.consumer.key)
    assert client.request is None
    assert client.mutation is None


def test_clients_of_a_user_share_and_those_of_a_default_do_not(quotas: ClientQuotas) -> None:
    quotas.set(QuotaEntity("alice"), rate(10))
    quotas.set(QuotaEntity(client_id=DEFAULT), rate(10))
    same = [quotas.client("alice", name, 0.0).producer for name in ("a", "b")]
    other = [quotas.client("bob", name, 0.0).producer for name in ("a", "b")]
    across = quotas.client("carol", "a", 0.0).producer
    assert same[0] is same[1]
    assert other[0] is not other[1]
    assert other[0] is across


def test_names_are_compared_as_they_stand_in_paths(quotas: ClientQuotas) -> None:
    quotas.set(QuotaEntity.of({"user": "CN=alice, OU=Ops", "client-id": "<default>"}), rate(3))
    assert quotas.client("CN=alice, OU=Ops", "<default>", 0.0).producer is not None
    assert quotas.client("CN=alice, OU=Ops", "app", 0.0).producer is None


def test_changed_quota_keeps_what_was_used(quotas: ClientQuotas) -> None:
    quotas.set(QuotaEntity("alice"), rate(100))
    before = quotas.client("alice", "app", 0.0).producer
    assert before is not None
    before.use(5000, 0.0)
    quotas.set(QuotaEntity("alice"), rate(1000))
    after = quotas.client("alice", "app", 0.0).producer
    assert after is before
    assert 0.0 == after.wait_seconds(5.0)
    assert after.wait_seconds(3.0) > 0
    quotas.set(QuotaEntity("alice"), {})
    assert quotas.client("alice", "app", 0.0).producer is None
    assert quotas.is_empty


def test_number_of_clients_is_bounded(quotas: ClientQuotas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "CLIENTS_MAX", 100)
    quotas.set(QuotaEntity(client_id=DEFAULT), {**rate(10), "controller_mutation_rate": 1.0})
    busy = quotas.client("u", "busy", 0.0)
    assert busy.producer is not None
    for number in itertools.count():
        now = number / 1000
        busy.producer.use(1, now)
        quotas.client("u", f"client-{number}", now)
        if number == 1000:
            break
    assert len(quotas.shares("producer_byte_rate")) <= 100
    assert len(quotas.shares("controller_mutation_rate")) <= 100
    found = quotas.client("u", "busy", 1.0).producer
    assert found is busy.producer, "a share in use was forgotten before idle ones"


def test_shares_stay_bounded_while_quotas_change(
    quotas: ClientQuotas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_quotas, "CLIENTS_MAX", 100)
    for number in range(1000):
        quotas.set(QuotaEntity(client_id=DEFAULT), rate(number + 1))
        quotas.client("u", f"client-{number}", number / 1000)
    assert max(len(shares) for shares in quotas._shares.values()) <= 100


def test_long_client_ids_are_not_kept_whole(quotas: ClientQuotas) -> None:
    """20,000 clients with ids of 32 KB each would take 600 MB."""
    quotas.set(QuotaEntity(client_id=DEFAULT), rate(7))
    share = quotas.client("alice", "a" * 32_000, 0.0).producer
    assert share is not None
    assert (None, "a" * 255) == share.key
    assert share is quotas.client("alice", "a" * 255, 0.0).producer


def test_share_of_a_removed_quota_is_not_listed(quotas: ClientQuotas) -> None:
    quotas.set(QuotaEntity("alice"), rate(100))
    quotas.client("alice", "a", 0.0)
    quotas.client("alice", "b", 0.0)
    assert [("alice", None)] == [share.key for share in quotas.shares(PRODUCER_BYTE_RATE)]
    assert quotas.has(PRODUCER_BYTE_RATE)
    quotas.set(QuotaEntity("alice"), {"consumer_byte_rate": 1.0})
    quotas.client("alice", "a", 0.0)
    assert [] == quotas.shares(PRODUCER_BYTE_RATE)
    assert not quotas.has(PRODUCER_BYTE_RATE)


def test_the_defaults_of_a_namespace_bound_its_users_alone(quotas: ClientQuotas) -> None:
    """They are stored under the prefix; the client ids of its users have the prefix as well."""
    quotas.namespaces.add("ns-7-")
    quotas.set(QuotaEntity("ns-7-"), rate(1))
    quotas.set(QuotaEntity(client_id="ns-7-app"), rate(2))
    quotas.set(QuotaEntity("ns-7-bob", "ns-7-app"), rate(3))
    found = {
        user: share.limit
        for user in ("ns-7-alice", "ns-7-bob", "ns-8-alice", "alice")
        if (share := quotas.client(user, "app", 0.0).producer) is not None
    }
    assert {"ns-7-alice": 1, "ns-7-bob": 3} == found
    quotas.set(QuotaEntity("ns-7-"), {})
    share = quotas.client("ns-7-alice", "app", 0.0).producer
    assert share is not None
    assert 2 == share.limit


def test_a_closed_namespace_leaves_no_clients_behind(quotas: ClientQuotas) -> None:
    """Thousands of namespaces come and go while a cluster runs."""
    quotas.namespaces.add("ns-7-")
    quotas.set(QuotaEntity("ns-7-"), rate(1))
    quotas.client("ns-7-alice", "app", 0.0)
    quotas.forget_namespace("ns-7-")
    assert [] == quotas.shares(PRODUCER_BYTE_RATE)
    assert not quotas.namespaces
