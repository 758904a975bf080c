"""What must hold in a group of consumers, in hand-made histories."""

from kalda.simulation.checks.ownership import CommitCheck, OwnershipCheck


def test_a_partition_may_move_to_another_member_in_the_next_generation() -> None:
    check = OwnershipCheck()
    assert check.delivered(1, 0, "a") is None
    assert check.delivered(1, 0, "a") is None
    assert check.delivered(1, 1, "b") is None
    assert check.delivered(2, 0, "b") is None


def test_two_owners_in_one_generation_are_found() -> None:
    check = OwnershipCheck()
    assert check.delivered(1, 0, "a") is None
    assert check.delivered(2, 0, "b") is None
    assert "partition 0 is a's in generation 1, and b's" == check.delivered(1, 0, "b")


def test_a_commit_behind_one_that_was_answered_before_it_began_is_found() -> None:
    check = CommitCheck()
    assert [] == check.committed(check.known(), {0: 10, 1: 3})
    known = check.known()
    assert [] == check.committed(check.known(), {0: 12})
    assert [] == check.committed(known, {0: 11}), "it began before, and its answer was late"
    assert ["partition 0 is committed at 5 after 12"] == check.committed(check.known(), {0: 5})


def test_a_member_that_reads_less_than_was_committed_is_found() -> None:
    known = {0: 10, 1: 3, 2: 7}
    assert [] == CommitCheck.read(known, {0: 10, 1: 4, 3: None})
    assert [
        "partition 0 was committed at 10, and 9 is read",
        "partition 2 was committed at 7, and None is read",
    ] == CommitCheck.read(known, {0: 9, 2: None})
