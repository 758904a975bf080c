"""What a fence adds to a cluster, and what is left when it is taken down."""

from kalda.clients.admin.quotas import quota_entity
from kalda.pipelines.cutover.fence import (
    HELD_RATE,
    exemption,
    planned_acls,
    planned_quotas,
    steps_of,
    without_fence,
)

ALICE = quota_entity({"user": "alice"})
EVERYONE = quota_entity({"user": None, "client-id": None})
ADDRESS = quota_entity({"ip": "10.0.0.1"})


def test_acls_that_the_operator_made_are_not_those_of_the_fence() -> None:
    """Taking the fence down must not remove them."""
    (own,) = planned_acls(["orders"], ()).acls
    assert ["logs"] == [each.pattern.name for each in planned_acls(["orders", "logs"], [own]).acls]


def test_every_writer_is_held_by_the_most_specific_quota() -> None:
    existing = {
        ALICE: {"producer_byte_rate": 1e6, "consumer_byte_rate": 2e6},
        quota_entity({"user": "bob"}): {"consumer_byte_rate": 5.0},
        ADDRESS: {"connection_creation_rate": 5.0},
    }
    fence = planned_quotas(existing)
    assert {EVERYONE: None, ALICE: 1e6} == {each.entity: each.before for each in fence.quotas}
    assert {HELD_RATE} == {each.value for each in fence.quotas}
    held = {
        **existing,
        ALICE: {**existing[ALICE], "producer_byte_rate": 1.0},
        EVERYONE: {"producer_byte_rate": 1.0},
    }
    assert existing == without_fence(held, fence)


def test_no_writer_meets_a_quota_of_less_than_a_tenth_of_its_rate_first() -> None:
    """A broker delays a request by the ratio of the rate to the quota, and keeps to that."""
    fence = planned_quotas({ALICE: {"producer_byte_rate": 5_000.0}})
    steps = steps_of(fence.quotas)
    everyone = [step[EVERYONE] for step in steps]
    assert [1e7, 1e6, 1e5, 1e4, 1e3, 1e2, 10.0, 1.0] == everyone
    assert [1e3, 1e2, 10.0, 1.0] == [step[ALICE] for step in steps if ALICE in step]


def test_the_quota_of_an_exempted_client_is_set_at_once() -> None:
    change = exemption("mirror")
    assert [{change.entity: change.value}] == steps_of([change])
