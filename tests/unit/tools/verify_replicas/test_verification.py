"""The rounds of a verification: what is fetched, when a partition is done, when it is given up."""

from kalda.common.types import TopicPartition
from kalda.tools.verify_replicas.comparison import Fetched, FetchedBatch, Mismatch
from kalda.tools.verify_replicas.verification import ROUNDS_MAX, GivenUp, Verification

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def fetched(high_watermark: int, *batches: tuple[int, int]) -> Fetched:
    return Fetched(high_watermark, [FetchedBatch(*batch) for batch in batches])


def test_every_replica_is_fetched_until_the_target_is_reached() -> None:
    verification = Verification()
    verification.add(A, (1, 2), 0, 6)
    verification.add(B, (2,), 3, 3)
    assert {1: {A: 0}, 2: {A: 0}} == verification.wanted()
    verification.received(1, A, fetched(6, (2, 7), (5, 8)))
    verification.received(2, A, fetched(6, (2, 7)))
    assert [] == list(verification.end_round())
    assert (False, (A, 3, 3)) == (verification.is_done, verification.max_lag)

    assert {1: {A: 3}, 2: {A: 3}} == verification.wanted()
    for broker in (1, 2):
        verification.received(broker, A, fetched(6, (5, 8)))
    assert [] == list(verification.end_round())
    assert (True, 2) == (verification.is_done, verification.compared)


def test_the_order_of_partitions_changes_from_round_to_round() -> None:
    """A response has room for some partitions only; each must get its turn."""
    verification = Verification()
    verification.add(A, (1,), 0, 9)
    verification.add(B, (1,), 0, 9)

    first = list(verification.wanted()[1])
    list(verification.end_round())
    assert [A, B] == first
    assert [B, A] == list(verification.wanted()[1])


def test_a_partition_without_progress_is_given_up_with_the_reason() -> None:
    verification = Verification()
    verification.add(A, (1, 2), 0, 6)
    found: list[Mismatch | GivenUp] = []
    for _ in range(ROUNDS_MAX):
        verification.wanted()
        verification.received(1, A, fetched(6, (5, 8)))
        verification.failed(2, A, "gone")
        found += verification.end_round()

    assert ["partition a-0 cannot be verified from offset 0 on: replica 2: gone"] == list(map(str, found))
    assert (True, 1) == (verification.is_done, verification.given_up)


def test_a_replica_that_stays_behind_is_named() -> None:
    verification = Verification()
    verification.add(A, (1, 2), 0, 6)
    found: list[Mismatch | GivenUp] = []
    for _ in range(ROUNDS_MAX):
        verification.wanted()
        verification.received(1, A, fetched(6, (5, 8)))
        verification.received(2, A, fetched(0))
        found += verification.end_round()

    (given_up,) = found
    assert "replica 2 has returned nothing (its high watermark is 0)" in str(given_up)


def test_following_an_idle_partition_never_ends() -> None:
    verification = Verification()
    verification.add(A, (1,), 4, None)
    for _ in range(ROUNDS_MAX + 1):
        verification.wanted()
        verification.received(1, A, fetched(4))
        assert [] == list(verification.end_round())
    assert not verification.is_done


def test_batches_that_end_at_different_offsets_end_the_partition() -> None:
    verification = Verification()
    verification.add(A, (1, 2), 0, 9)
    verification.wanted()
    verification.received(1, A, fetched(9, (2, 7)))
    verification.received(2, A, fetched(9, (3, 7)))

    mismatch, given_up = verification.end_round()
    assert isinstance(mismatch, Mismatch)
    assert isinstance(given_up, GivenUp)
    assert (True, 1, 1) == (verification.is_done, verification.mismatches, verification.given_up)


def test_deleted_records_move_the_start() -> None:
    verification = Verification()
    verification.add(A, (1,), 0, 6)
    verification.wanted()
    verification.moved(A, 6)
    verification.received(1, A, fetched(6))

    assert [] == list(verification.end_round())
    assert verification.is_done
