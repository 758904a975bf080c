"""Which links the faults of a plan concern: `Links`, and those of the broker of a process."""

import pytest

from kalda.broker.process.faulty_links import COORDINATOR, Member, OwnLinks
from kalda.faults import FaultPlan


def links(plan: str) -> OwnLinks:
    made = OwnLinks()
    for fault in FaultPlan.parse(plan).link_faults:
        made.add_fault(fault)
    return made


@pytest.mark.parametrize(
    ("plan", "cut"),
    [
        ("link:cut@0-1", {(0, 1), (1, 0)}),
        ("link:cut@0>1", {(0, 1)}),
        ("link:cut@1-all", {(0, 1), (1, 0), (1, 2), (2, 1)}),
        ("link:cut@1-coordinator", {(1, COORDINATOR)}),
        ("link:cut@all-coordinator", {(0, COORDINATOR), (1, COORDINATOR), (2, COORDINATOR)}),
        ("link:delay=5ms@0-1", set()),
    ],
)
def test_cut_links(plan: str, cut: set[tuple[Member, Member]]) -> None:
    """`all` stands for every other broker, not for the coordination server."""
    members: list[Member] = [0, 1, 2, COORDINATOR]
    found = links(plan)
    pairs = {(one, other) for one in (0, 1, 2) for other in members if found.is_cut(one, other)}
    assert cut == pairs


def test_address_of_a_broker_stays_known_when_its_registration_ends() -> None:
    known = {("127.0.0.1", 9092): 1}
    own = OwnLinks()
    own.join(0, lambda host, port: known.get((host, port)))
    assert 1 == own.member_at("127.0.0.1", 9092)
    known.clear()
    assert 1 == own.member_at("127.0.0.1", 9092)
    assert own.member_at("127.0.0.1", 9093) is None
