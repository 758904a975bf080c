"""Processes of a registry understand each other, and those of Confluent's registry."""

import pytest

from kalda.http.registry.identity import Assignment, Identity, IdentityError, elect

A = Identity("a", 8081, True)
B = Identity("b", 8081, True)


def test_the_json_is_confluents() -> None:
    assert (
        b'{"version":1,"host":"a","port":8081,"master_eligibility":true,"scheme":"http","leader":false}'
        == A.encode()
    )
    assert (
        b'{"error":0,"master":"m","master_identity":'
        b'{"version":1,"host":"a","port":8081,"master_eligibility":true,"scheme":"http","leader":false},'
        b'"version":1}'
    ) == Assignment(0, "m", A).encode()


def test_an_identity_and_an_assignment_survive_the_wire() -> None:
    assert A == Identity.decode(A.encode())
    assert Assignment(0, "m", A) == Assignment.decode(Assignment(0, "m", A).encode())
    assert Assignment() == Assignment.decode(Assignment().encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b'{"host":1,"port":1}', b'{"host":"a"}'])
def test_junk_is_an_error(data: bytes) -> None:
    with pytest.raises(IdentityError):
        Identity.decode(data)


def test_the_least_address_is_elected_among_those_that_are_eligible() -> None:
    ineligible = Identity("0", 8081, False)

    assert ("2", A) == (elect({"1": B, "2": A, "3": ineligible}).member_id, elect({"1": B, "2": A}).writer)
    assert Assignment(0) == elect({"3": ineligible})


def test_the_writer_stays_the_writer() -> None:
    """An election because a process joined moves nothing."""
    before = Identity("b", 8081, True, is_writer=True)

    assert "1" == elect({"1": before, "2": A}).member_id
    assert "2" == elect({"1": before, "2": Identity("a", 8081, True, is_writer=True)}).member_id


def test_two_members_with_one_address_are_an_error() -> None:
    assert 1 == elect({"1": A, "2": A}).error
