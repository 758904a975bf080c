"""What producers are told, what is written for it, and how a half-done end goes on elsewhere."""

import pytest

from kalda.common.errors import ErrorCode
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.runtime.coordinator_runtime import PartitionState
from kalda.coordinator.transaction import transaction_log
from kalda.coordinator.transaction.transaction_coordinator import TransactionConfig
from kalda.coordinator.transaction.transaction_metadata import (
    EPOCH_MAX,
    TIMEOUT_NEVER,
    Identity,
    TransactionMetadata,
)
from kalda.coordinator.transaction.transaction_state import TransactionState
from kalda.protocol.protocol_errors import ProtocolError
from tests.unit.coordinator.transaction_simulation import (
    OFFSETS,
    PARTITION,
    A,
    B,
    Simulation,
    open_transaction,
)

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED


@pytest.fixture(params=[0, 2], ids=["v1", "v2"])
def simulation(request: pytest.FixtureRequest) -> Simulation:
    """Both protocols: most of what is promised does not depend on it."""
    return Simulation(version=request.param)


def set_epoch(simulation: Simulation, producer: Identity) -> None:
    """Write a state in which a producer has used up many epochs."""
    metadata = TransactionMetadata(
        "t",
        producer.producer_id,
        producer.epoch,
        60_000,
        TransactionState.COMPLETE_COMMIT,
        start_ms=1,
        update_ms=1,
    )
    simulation.log.add(PARTITION, transaction_log.encode(metadata, simulation.version))
    simulation.fail_over()


# Beginning.


def test_a_new_id_gets_a_producer_id_with_epoch_0(simulation: Simulation) -> None:
    assert Identity(1000, 0) == simulation.begin().identity
    assert Identity(1001, 0) == simulation.begin("u").identity


def test_the_next_producer_of_the_id_gets_the_next_epoch(simulation: Simulation) -> None:
    simulation.begin()
    assert Identity(1000, 1) == simulation.begin().identity


def test_an_empty_id_and_a_timeout_that_is_not_allowed_are_refused(simulation: Simulation) -> None:
    assert ErrorCode.INVALID_REQUEST is simulation.begin("").code
    for timeout_ms in (0, -1, 900_001, TIMEOUT_NEVER):
        assert ErrorCode.INVALID_TRANSACTION_TIMEOUT is simulation.begin(timeout_ms=timeout_ms).code
    assert [] == simulation.written()


def test_a_producer_goes_on_after_an_error_with_a_higher_epoch(simulation: Simulation) -> None:
    """KIP-360; asking again for a lost answer gives the same epoch."""
    producer = simulation.begin().identity
    assert Identity(1000, 1) == simulation.begin(expected=producer).identity
    assert Identity(1000, 1) == simulation.begin(expected=producer).identity
    assert FENCED is simulation.begin(expected=Identity(1000, 7)).code
    assert FENCED is simulation.begin(expected=Identity(999, 1)).code


def test_a_zombie_cannot_raise_the_epoch_of_its_successor(simulation: Simulation) -> None:
    zombie = simulation.begin().identity
    simulation.begin()
    assert FENCED is simulation.begin(expected=zombie).code


def test_an_exhausted_epoch_leads_to_a_new_producer_id(simulation: Simulation) -> None:
    old = Identity(7, EPOCH_MAX - 1)
    set_epoch(simulation, old)
    assert Identity(1000, 0) == simulation.begin(expected=old).identity
    # Its answer was lost: the old id is still known as the one before.
    assert Identity(1000, 0) == simulation.begin(expected=old).identity


@pytest.mark.parametrize("version", [1, 2])
def test_a_retry_after_a_new_producer_id_is_known_to_the_next_coordinator(version: int) -> None:
    """KAFKA-20357: the coordinator may fail between the record and the response."""
    simulation = Simulation(version=version)
    old = Identity(7, EPOCH_MAX - 1)
    set_epoch(simulation, old)
    assert Identity(1000, 0) == simulation.begin(expected=old).identity

    simulation.fail_over()

    assert (NONE, Identity(1000, 0)) == (
        (again := simulation.begin(expected=old)).code,
        again.identity,
    )


def test_a_retry_of_a_raised_epoch_is_known_to_the_next_coordinator() -> None:
    simulation = Simulation(version=2)
    producer = simulation.begin().identity
    assert Identity(1000, 1) == simulation.begin(expected=producer).identity

    simulation.fail_over()

    assert Identity(1000, 1) == simulation.begin(expected=producer).identity


def test_the_epoch_that_shuts_a_producer_out_is_never_given_to_one() -> None:
    """Above it there is none to shut its own holder out with."""
    simulation = Simulation(version=2)
    last = Identity(7, EPOCH_MAX - 1)
    set_epoch(simulation, last)
    assert NONE is simulation.add(last, A)
    assert ErrorCode.CONCURRENT_TRANSACTIONS is simulation.begin(expected=last).code
    simulation.markers.write(A)
    simulation.loop.settle()
    aborted = simulation.written()[-1][1]
    assert aborted is not None
    assert EPOCH_MAX == aborted.producer_epoch
    assert FENCED is simulation.end(last, commit=False).code
    assert FENCED is simulation.add(Identity(7, EPOCH_MAX), A)
    fresh = simulation.begin(expected=last)
    assert (NONE, 0) == (fresh.code, fresh.identity.epoch)
    assert 7 != fresh.identity.producer_id


def test_without_a_producer_id_to_be_had_the_producer_is_to_ask_again(simulation: Simulation) -> None:
    simulation.ids.is_out = True
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS is simulation.begin().code
    simulation.ids.is_out = False
    assert NONE is simulation.begin().code


def test_beginning_aborts_what_the_producer_before_left_open(simulation: Simulation) -> None:
    zombie = open_transaction(simulation)
    assert ErrorCode.CONCURRENT_TRANSACTIONS is simulation.begin().code
    assert "PrepareAbort" == simulation.title()
    assert ErrorCode.CONCURRENT_TRANSACTIONS is simulation.begin().code
    simulation.markers.write_all()
    # Markers carry an epoch above the zombie's, so that its last batches are refused.
    assert {(Identity(1000, 1), False)} == {sent[:2] for sent in simulation.markers.sent}
    assert Identity(1000, 2) == simulation.begin().identity
    assert FENCED is simulation.add(zombie, A)
    assert FENCED is simulation.end(zombie, commit=True).code


# In a transaction.


def test_partitions_are_added_once(simulation: Simulation) -> None:
    producer = open_transaction(simulation, [A])
    before = len(simulation.written())
    assert NONE is simulation.add(producer, A)
    assert before == len(simulation.written())
    assert NONE is simulation.add(producer, A, OFFSETS)
    state = simulation.state()
    assert state is not None
    assert {A, OFFSETS} == state.partitions


def test_strangers_add_nothing(simulation: Simulation) -> None:
    producer = simulation.begin().identity
    assert ErrorCode.INVALID_PRODUCER_ID_MAPPING is simulation.add(producer, A, name="unknown")
    assert ErrorCode.INVALID_PRODUCER_ID_MAPPING is simulation.add(Identity(5, 0), A)
    assert FENCED is simulation.add(Identity(producer.producer_id, 5), A)
    assert ErrorCode.INVALID_REQUEST is simulation.add(producer, A, name="")


def test_verification_tells_which_partitions_are_in_the_transaction(simulation: Simulation) -> None:
    producer = open_transaction(simulation, [A])
    assert {A: NONE, B: ErrorCode.TRANSACTION_ABORTABLE} == simulation.verify(producer, A, B)
    assert {A: FENCED} == simulation.verify(Identity(producer.producer_id, 9), A)
    assert {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING} == simulation.verify(producer, A, name="u")
    assert {A: ErrorCode.INVALID_REQUEST} == simulation.verify(producer, A, name="")


def test_while_a_transaction_ends_nothing_is_added_or_verified() -> None:
    simulation = Simulation()
    producer = open_transaction(simulation)
    simulation.end(producer, commit=True)
    assert ErrorCode.CONCURRENT_TRANSACTIONS is simulation.add(producer, A)
    assert {A: ErrorCode.CONCURRENT_TRANSACTIONS} == simulation.verify(producer, A)


# Ending.


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_is_answered_before_and_complete_after_the_markers(
    simulation: Simulation, commit: bool
) -> None:
    producer = open_transaction(simulation)
    answer = simulation.end(producer, commit=commit)
    assert NONE is answer.code
    name = "Commit" if commit else "Abort"
    assert f"Prepare{name}" == simulation.title()
    simulation.markers.write(A)
    assert f"Prepare{name}" == simulation.title()
    simulation.markers.write(B)
    assert f"Complete{name}" == simulation.title()
    raised = Identity(producer.producer_id, producer.epoch + (1 if simulation.version else 0))
    assert raised == answer.identity
    assert {(raised, commit)} == {sent[:2] for sent in simulation.markers.sent}
    assert NONE is simulation.add(raised, A), "the next transaction begins"


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_may_be_asked_for_again(simulation: Simulation, commit: bool) -> None:
    producer = open_transaction(simulation)
    first = simulation.end(producer, commit=commit)
    assert ErrorCode.CONCURRENT_TRANSACTIONS is simulation.end(producer, commit=commit).code
    assert ErrorCode.CONCURRENT_TRANSACTIONS is simulation.end(producer, commit=not commit).code
    simulation.markers.write_all()
    assert first.identity == simulation.end(producer, commit=commit).identity
    assert ErrorCode.INVALID_TXN_STATE is simulation.end(producer, commit=not commit).code


@pytest.mark.parametrize(("commits", "aborts"), [(True, True), (True, False), (False, True)])
def test_the_next_end_waits_while_the_transaction_before_is_prepared(commits: bool, aborts: bool) -> None:
    """In its current epoch a producer of the second protocol ends the next transaction."""
    simulation = Simulation()
    simulation.version = 2
    raised = simulation.end(open_transaction(simulation), commit=commits).identity
    assert ErrorCode.CONCURRENT_TRANSACTIONS is simulation.end(raised, commit=not aborts).code
    stale = Identity(raised.producer_id, raised.epoch + 1)
    assert ErrorCode.PRODUCER_FENCED is simulation.end(stale, commit=not aborts).code
    simulation.markers.write_all()
    if aborts:
        assert NONE is simulation.end(raised, commit=False).code
    else:
        assert NONE is simulation.add(raised, A)
        assert NONE is simulation.end(raised, commit=True).code


def test_a_version_that_is_not_finalized_writes_no_newer_records() -> None:
    """Brokers to which the cluster goes back may not read them; only a finalized level says that all do."""
    simulation = Simulation()
    producer = simulation.begin().identity
    coordinator = simulation.coordinator
    assert NONE is simulation.now(coordinator.add_partitions("t", producer, [A], client_version=2)).code
    ended = simulation.now(coordinator.end("t", producer, is_commit=True, client_version=2))
    assert (NONE, producer) == (ended.code, ended.identity), "the epoch stays"
    simulation.markers.write_all()
    assert {0} == {metadata.client_version for _, metadata in simulation.written() if metadata is not None}


def test_a_producer_ends_by_the_version_by_which_it_began_after_a_downgrade() -> None:
    simulation = Simulation(version=2)
    producer = open_transaction(simulation)
    simulation.version = 0
    coordinator = simulation.coordinator
    raised = simulation.now(coordinator.end("t", producer, is_commit=True, client_version=2)).identity
    assert Identity(producer.producer_id, producer.epoch + 1) == raised
    simulation.markers.write_all()
    # The answer was lost: the producer asks again.
    again = simulation.now(coordinator.end("t", producer, is_commit=True, client_version=2))
    assert (NONE, raised) == (again.code, again.identity)
    begun = simulation.begin().identity
    assert NONE is simulation.now(coordinator.add_partitions("t", begun, [A], client_version=2)).code
    assert begun == simulation.now(coordinator.end("t", begun, is_commit=True, client_version=2)).identity


def test_what_never_began_cannot_be_committed(simulation: Simulation) -> None:
    producer = simulation.begin().identity
    assert ErrorCode.INVALID_TXN_STATE is simulation.end(producer, commit=True).code
    assert ErrorCode.INVALID_PRODUCER_ID_MAPPING is simulation.end(producer, commit=True, name="u").code
    assert ErrorCode.INVALID_REQUEST is simulation.end(producer, commit=True, name="").code


def test_with_raised_epochs_an_abort_needs_no_partitions() -> None:
    """What the producer wrote may be unknown to the coordinator: the abort raises its epoch all the same."""
    simulation = Simulation(version=2)
    producer = simulation.begin().identity
    assert Identity(1000, 1) == simulation.end(producer, commit=False).identity
    assert "CompleteAbort" == simulation.title()
    assert Identity(1000, 1) == simulation.end(producer, commit=False).identity, "asked again"
    assert Identity(1000, 2) == simulation.end(Identity(1000, 1), commit=False).identity


def test_with_raised_epochs_an_exhausted_one_gives_way_to_a_new_id() -> None:
    simulation = Simulation(version=2)
    old = Identity(7, EPOCH_MAX - 1)
    set_epoch(simulation, old)
    assert NONE is simulation.add(old, A)
    answer = simulation.end(old, commit=True)
    assert Identity(1000, 0) == answer.identity
    assert {(Identity(7, EPOCH_MAX), True)} == {sent[:2] for sent in simulation.markers.sent}
    assert ErrorCode.CONCURRENT_TRANSACTIONS is simulation.end(old, commit=True).code
    simulation.markers.write_all()
    assert Identity(1000, 0) == simulation.end(old, commit=True).identity, "asked again"
    assert NONE is simulation.add(Identity(1000, 0), A)


# Time.


def test_a_transaction_that_is_open_for_too_long_is_aborted(simulation: Simulation) -> None:
    producer = open_transaction(simulation, timeout_ms=5_000)
    simulation.loop.advance(5_000)
    assert 0 == simulation.coordinator.abort_timed_out()
    simulation.loop.advance(1)
    assert 1 == simulation.coordinator.abort_timed_out()
    simulation.loop.settle()
    assert "PrepareAbort" == simulation.title()
    simulation.markers.write_all()
    assert "CompleteAbort" == simulation.title()
    assert FENCED is simulation.add(producer, A)
    assert NONE is not simulation.end(producer, commit=True).code
    assert 0 == simulation.coordinator.abort_timed_out()


def test_an_id_that_is_idle_for_long_is_forgotten() -> None:
    simulation = Simulation(config=TransactionConfig(transactional_id_expiration_ms=1_000))
    simulation.begin()
    open_transaction(simulation, name="open")
    simulation.loop.advance(999)
    assert 0 == simulation.coordinator.forget_expired()
    simulation.loop.advance(1)
    assert 1 == simulation.coordinator.forget_expired()
    simulation.loop.settle()
    assert simulation.state() is None
    assert "Ongoing" == simulation.title("open")
    assert ("t", None) == simulation.written()[-1]
    simulation.fail_over()
    assert simulation.state() is None
    assert Identity(1002, 0) == simulation.begin().identity


# Two-phase commit (KIP-939).


@pytest.mark.parametrize("seconds", [900.0, -900.0])
def test_a_wall_clock_that_jumps_does_not_move_a_time_out(simulation: Simulation, seconds: float) -> None:
    """NTP or an operator may set it; the producer counts its own time."""
    open_transaction(simulation, timeout_ms=1000)
    simulation.clock.jump(seconds)
    simulation.loop.advance(1000)
    assert 0 == simulation.coordinator.abort_timed_out()
    simulation.loop.advance(1)
    assert 1 == simulation.coordinator.abort_timed_out()
    simulation.loop.settle()
    assert "PrepareAbort" == simulation.title()


def test_more_partitions_do_not_lengthen_a_transaction(simulation: Simulation) -> None:
    producer = open_transaction(simulation, (A,), timeout_ms=1000)
    simulation.loop.advance(600)
    simulation.clock.jump(-900)
    assert NONE is simulation.add(producer, B)
    simulation.loop.advance(401)
    assert 1 == simulation.coordinator.abort_timed_out()


def test_each_transaction_has_a_time_of_its_own(simulation: Simulation) -> None:
    producer = open_transaction(simulation, timeout_ms=1000)
    simulation.loop.advance(900)
    producer = simulation.end(producer, commit=True).identity
    simulation.markers.write_all()
    assert NONE is simulation.add(producer, A)
    simulation.loop.advance(900)
    assert 0 == simulation.coordinator.abort_timed_out()
    simulation.loop.advance(101)
    assert 1 == simulation.coordinator.abort_timed_out()


@pytest.mark.parametrize(("jump", "left_ms"), [(0.0, 400), (-900.0, 1000), (900.0, 0)])
def test_after_a_load_the_time_that_is_left_comes_from_the_wall_clock(
    simulation: Simulation, jump: float, left_ms: int
) -> None:
    """The record has the only time there is; a clock that was set back gives a whole time-out, not more."""
    open_transaction(simulation, timeout_ms=1000)
    simulation.loop.advance(600)
    simulation.clock.jump(jump)
    simulation.fail_over()
    simulation.clock.jump(-jump)
    if left_ms:
        simulation.loop.advance(left_ms)
        assert 0 == simulation.coordinator.abort_timed_out()
    simulation.loop.advance(1)
    assert 1 == simulation.coordinator.abort_timed_out()


def test_a_prepared_transaction_outlives_every_time_out(simulation: Simulation) -> None:
    producer = open_transaction(simulation, two_phase=True)
    simulation.loop.advance(10**9)
    assert 0 == simulation.coordinator.abort_timed_out()
    assert NONE is simulation.end(producer, commit=True).code


def test_a_prepared_transaction_is_taken_over_and_committed(simulation: Simulation) -> None:
    producer = open_transaction(simulation, two_phase=True)
    simulation.fail_over()
    taken = simulation.begin(two_phase=True, keep=True)
    assert (NONE, producer, Identity(1000, 1)) == (taken.code, taken.ongoing, taken.identity)
    assert "Ongoing" == simulation.title()
    # It may only be ended, and not by the one before.
    assert ErrorCode.INVALID_TXN_STATE is simulation.add(taken.identity, A)
    assert {A: ErrorCode.INVALID_TXN_STATE} == simulation.verify(taken.identity, A)
    for code in (simulation.end(producer, commit=False).code, simulation.add(producer, A)):
        assert FENCED is code
    simulation.fail_over()
    answer = simulation.end(taken.identity, commit=True)
    assert NONE is answer.code
    assert {True} == {sent[1] for sent in simulation.markers.sent}
    simulation.markers.write_all()
    assert "CompleteCommit" == simulation.title()
    assert Identity(1000, 2 if simulation.version else 1) == answer.identity
    assert NONE is simulation.add(answer.identity, A)


def test_taking_over_twice_leaves_the_last_one_the_owner(simulation: Simulation) -> None:
    producer = open_transaction(simulation, two_phase=True)
    first = simulation.begin(two_phase=True, keep=True)
    second = simulation.begin(two_phase=True, keep=True)
    assert producer == second.ongoing
    assert FENCED is simulation.end(first.identity, commit=True).code
    assert NONE is simulation.end(second.identity, commit=False).code


def test_a_fenced_producer_takes_no_transaction_over(simulation: Simulation) -> None:
    """One that named its former epoch fenced the owner of the prepared transaction."""
    producer = open_transaction(simulation, two_phase=True)
    owner = simulation.begin(two_phase=True, keep=True).identity
    assert FENCED is simulation.begin(two_phase=True, keep=True, expected=producer).code
    taken = simulation.begin(two_phase=True, keep=True, expected=owner)
    assert (NONE, producer) == (taken.code, taken.ongoing)
    assert NONE is simulation.end(taken.identity, commit=True).code


def test_a_takeover_at_the_last_epoch_gets_a_new_id() -> None:
    simulation = Simulation(version=2)
    old = Identity(7, EPOCH_MAX - 1)
    set_epoch(simulation, old)
    assert NONE is simulation.add(old, A)
    taken = simulation.begin(two_phase=True, keep=True)
    assert (old, Identity(1000, 0)) == (taken.ongoing, taken.identity)
    answer = simulation.end(taken.identity, commit=True)
    assert {(Identity(7, EPOCH_MAX), True)} == {sent[:2] for sent in simulation.markers.sent}
    simulation.markers.write_all()
    assert Identity(1000, 1) == answer.identity
    assert NONE is simulation.add(answer.identity, A)


def test_a_producer_that_does_not_keep_it_aborts_what_was_taken_over(simulation: Simulation) -> None:
    open_transaction(simulation, two_phase=True)
    taken = simulation.begin(two_phase=True, keep=True).identity
    assert ErrorCode.CONCURRENT_TRANSACTIONS is simulation.begin(two_phase=True).code
    simulation.markers.write_all()
    begun = simulation.begin(two_phase=True).identity
    assert begun.epoch > taken.epoch
    assert FENCED is simulation.end(taken, commit=True).code


def test_keeping_without_an_open_transaction_is_a_usual_beginning(simulation: Simulation) -> None:
    answer = simulation.begin(two_phase=True, keep=True)
    assert (Identity(1000, 0), Identity(-1, -1)) == (answer.identity, answer.ongoing)


def test_two_phase_commit_has_to_be_allowed() -> None:
    simulation = Simulation(config=TransactionConfig())
    assert ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED is simulation.begin(two_phase=True).code
    assert ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED is simulation.begin(keep=True).code


# Replication and failures.


def test_markers_wait_until_the_decision_is_replicated(simulation: Simulation) -> None:
    """A decision that is lost with its leader must not be in any log."""
    producer = open_transaction(simulation)
    simulation.log.lag = True
    pending = simulation.coordinator.end("t", producer, is_commit=True, client_version=simulation.version)
    simulation.loop.settle()
    assert not pending.is_done
    assert [] == simulation.markers.sent
    simulation.replicate()
    assert NONE is pending.value.code
    assert 2 == len(simulation.markers.sent)


def test_markers_follow_even_if_replicating_took_too_long(simulation: Simulation) -> None:
    producer = open_transaction(simulation)
    simulation.log.lag = True
    pending = simulation.coordinator.end("t", producer, is_commit=True, client_version=simulation.version)
    simulation.loop.advance(60_000)
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE is pending.value.code
    assert [] == simulation.markers.sent
    simulation.replicate()
    simulation.loop.advance(1_000)
    simulation.replicate()
    assert 2 == len(simulation.markers.sent)


def test_a_log_that_refuses_changes_nothing(simulation: Simulation) -> None:
    producer = open_transaction(simulation)
    simulation.log.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE is simulation.end(producer, commit=True).code
    assert "Ongoing" == simulation.title()
    simulation.log.append_error = None
    assert NONE is simulation.end(producer, commit=True).code


def test_the_completion_is_written_however_often_the_log_refuses(simulation: Simulation) -> None:
    producer = open_transaction(simulation)
    simulation.end(producer, commit=True)
    simulation.log.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    simulation.markers.write_all()
    simulation.loop.advance(5_000)
    assert "PrepareCommit" == simulation.title()
    simulation.log.append_error = None
    simulation.loop.advance(5_000)
    assert "CompleteCommit" == simulation.title()


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("step", ["decided", "one marker", "all markers"])
def test_a_half_done_end_goes_on_with_the_next_coordinator(
    simulation: Simulation, commit: bool, step: str
) -> None:
    """Killed at any step: the outcome is the one that was decided, and every partition is told."""
    producer = open_transaction(simulation)
    answer = simulation.end(producer, commit=commit)
    if step == "one marker":
        simulation.markers.write(A)
    if step == "all markers":
        simulation.log.append_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        simulation.markers.write_all()
        simulation.log.append_error = None
    simulation.fail_over()
    assert ErrorCode.CONCURRENT_TRANSACTIONS is simulation.end(producer, commit=commit).code
    assert [(answer.identity, commit, 1, A), (answer.identity, commit, 1, B)] == simulation.markers.sent
    simulation.markers.write_all()
    assert ("CompleteCommit" if commit else "CompleteAbort") == simulation.title()
    assert answer.identity == simulation.end(producer, commit=commit).identity


def test_a_coordinator_that_was_replaced_writes_nothing_more(simulation: Simulation) -> None:
    producer = open_transaction(simulation)
    simulation.end(producer, commit=True)
    (work,) = simulation.markers.works
    simulation.runtime.resign(PARTITION)
    assert [] == simulation.markers.works
    before = len(simulation.written())
    work.on_done(work)
    simulation.loop.settle()
    assert before == len(simulation.written())
    assert ErrorCode.NOT_COORDINATOR is simulation.end(producer, commit=True).code
    assert {A: ErrorCode.NOT_COORDINATOR} == simulation.verify(producer, A)


def test_while_loading_producers_are_told_so() -> None:
    simulation = Simulation(is_loaded=False)
    simulation.runtime.become_leader(PARTITION, 0)
    pending = simulation.coordinator.begin("t", 1000)
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS is pending.value.code


# Looking.


def test_a_description_lists_what_has_no_marker_yet(simulation: Simulation) -> None:
    producer = open_transaction(simulation)
    simulation.end(producer, commit=True)
    simulation.markers.write(A)
    code, metadata = simulation.now(simulation.coordinator.describe("t"))
    assert NONE is code
    assert metadata is not None
    assert {B} == simulation.coordinator.remaining_partitions(metadata)
    simulation.markers.write_all()
    assert ErrorCode.TRANSACTIONAL_ID_NOT_FOUND is simulation.now(simulation.coordinator.describe("u"))[0]
    assert ErrorCode.INVALID_REQUEST is simulation.now(simulation.coordinator.describe(""))[0]
    assert ["t"] == [each.transactional_id for each in simulation.coordinator.transactions()]


# Records.


def test_records_are_those_that_kafka_writes() -> None:
    """Bytes of `TransactionLog.valueToBytes` for transaction versions 0 and 2."""
    metadata = TransactionMetadata(
        "t",
        1000,
        1,
        60_000,
        TransactionState.ONGOING,
        frozenset([A]),
        5,
        6,
        previous_producer_id=1000,
        client_version=2,
    )
    record = transaction_log.encode(metadata, 2)
    assert bytes.fromhex("0000000174") == record.key
    assert record.value is not None
    assert (
        "000100000000000003e800010000ea6001020261020000000000"
        "0000000000000006000000000000000502000800000000000003e802020002"
    ) == record.value.hex()  # fmt: skip
    plain = TransactionMetadata("t", 1000, 1, 60_000, TransactionState.EMPTY, update_ms=6)
    value = transaction_log.encode(plain, 0).value
    assert value is not None
    assert (
        "000000000000000003e800010000ea6000ffffffff0000000000000006ffffffffffffffff"
    ) == value.hex()  # fmt: skip


def test_unknown_keys_are_skipped_broken_records_left_out_and_newer_ones_refused() -> None:
    simulation = Simulation()
    simulation.log.add(
        PARTITION,
        CoordinatorRecord(b"\x00\x09later", b"x"),
        CoordinatorRecord(b"\x00\x00\x00\x01u", b"\x00\x00"),
        transaction_log.encode(TransactionMetadata("t", 5, 0, 1, TransactionState.EMPTY), 0),
    )
    simulation.fail_over()
    assert "Empty" == simulation.title()
    newer = CoordinatorRecord(b"\x00\x00\x00\x01u", b"\x00\x02")
    simulation.log.add(PARTITION, newer)
    simulation.fail_over()
    assert {PARTITION: PartitionState.FAILED} == simulation.runtime.states()
    broken = bytes.fromhex("000000000000000003e800010000ea6009ffffffff" + "00" * 16)
    with pytest.raises(ProtocolError, match="known are 0 to 7"):
        transaction_log.decode(CoordinatorRecord(b"\x00\x00\x00\x01u", broken))
