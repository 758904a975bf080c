"""The first batch of a transaction waits for the coordinator's word, and nothing overtakes it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kalda.broker.requests.api import Pending
from kalda.broker.requests.handlers.produce import PARTITIONS_AT_ONCE, handle_produce
from kalda.broker.requests.request_slices import value_of
from kalda.broker.transactions.marker_appends import Codes, Marker
from kalda.broker.transactions.produce_gate import Admission, ProduceGate
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.coordinator.transaction.transaction_metadata import Identity
from kalda.protocol import codec
from kalda.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kalda.storage.log_config import CleanupPolicy
from tests.unit.broker.data_path_fakes import TOPIC, DataPath, HeldConversions, batch, leadership

PARTITION = TopicPartition(TOPIC, 0)
NONE = ErrorCode.NONE


class FakeVerification:
    """Questions that the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Identity, tuple[TopicPartition, ...], bool]] = []
        self.answers: list[Pending[Codes]] = []

    def ask(
        self,
        transactional_id: str,
        producer: Identity,
        partitions: tuple[TopicPartition, ...],
        *,
        adds: bool = False,
    ) -> Pending[Codes]:
        self.asked.append((transactional_id, producer, partitions, adds))
        self.answers.append(Pending())
        return self.answers[-1]

    def answer(self, at: int, code: ErrorCode = NONE) -> None:
        self.answers[at].complete(dict.fromkeys(self.asked[at][2], code))


class Broker(DataPath):
    """A data path that takes transactional batches."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_verifying = True
        self.verification = FakeVerification()
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.gate = ProduceGate(
            self.replicas,
            cast("Any", self.verification),
            is_verifying=lambda: self.is_verifying,
            later=lambda seconds, call: self.later.append((seconds, call)),
        )
        self.host(leadership(), leadership(1))

    def send(
        self,
        sequence: int,
        *,
        epoch: int = 0,
        version: int = 11,
        partitions: tuple[int, ...] = (0,),
        value: bytes = b"a",
    ) -> Any:
        """Send one transactional batch to each partition; return what the handler returned."""
        records = batch(
            value, producer_id=9, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
        )
        request = ProduceRequest(
            transactional_id="t",
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name=TOPIC,
                    partition_data=[PartitionProduceData(index=each, records=records) for each in partitions],
                )
            ],
        )
        frame = memoryview(bytearray(codec.encode(request, version)))
        reply = handle_produce(self.produce_parts, self.context(version), frame, 0)
        # The frame is another request's by the time the batch goes on.
        frame[:] = bytes(len(frame))
        return reply

    def codes(self, reply: Any, version: int = 11) -> list[int]:
        response = self.produce_response(reply, version)
        return [each.error_code for each in response.responses[0].partition_responses]

    def mark(
        self, *, commit: bool = True, epoch: int = 0, partition: TopicPartition = PARTITION
    ) -> ErrorCode:
        found: list[list[Codes]] = []
        self.marker_appends().write([Marker(9, epoch, commit, 0, (partition,))], found.append)
        return found[0][0][partition]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    path = Broker(tmp_path)
    yield path
    path.close()


def test_the_first_batch_waits_and_the_next_ones_do_not(broker: Broker) -> None:
    reply = broker.send(0)
    assert not reply.is_done
    assert [("t", Identity(9, 0), (PARTITION,), False)] == broker.verification.asked
    broker.verification.answer(0)
    assert [NONE] == broker.codes(reply)
    assert [NONE] == broker.codes(broker.send(1))
    assert 1 == len(broker.verification.asked)
    assert 0 == broker.gate.waiting_count


def test_what_comes_meanwhile_keeps_its_place(broker: Broker) -> None:
    """Sequence numbers allow no overtaking, whichever answer comes first."""
    replies = [broker.send(each) for each in range(3)]
    broker.verification.answer(2)
    broker.verification.answer(1)
    assert not any(each.is_done for each in replies)
    broker.verification.answer(0)
    assert [[NONE]] * 3 == [broker.codes(each) for each in replies]
    assert 3 == broker.partition().log.log_end_offset


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.PRODUCER_FENCED, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NETWORK_EXCEPTION, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 11, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_a_refusal_is_told_in_words_that_the_producer_knows(
    broker: Broker, code: ErrorCode, version: int, told: ErrorCode
) -> None:
    reply = broker.send(0, version=version)
    broker.verification.answer(0, code)
    assert [told] == broker.codes(reply, version)
    assert 0 == broker.partition().log.log_end_offset


def test_a_marker_that_is_written_meanwhile_makes_the_word_worthless(broker: Broker) -> None:
    """Else a batch that was under way for long would open a transaction that nobody ends."""
    reply = broker.send(0)
    assert NONE is broker.mark(commit=False)
    broker.verification.answer(0)
    assert [ErrorCode.INVALID_TXN_STATE] == broker.codes(reply)
    assert 1 == broker.partition().log.log_end_offset


def test_after_its_end_a_transaction_is_verified_anew(broker: Broker) -> None:
    broker.send(0)
    broker.verification.answer(0)
    assert NONE is broker.mark()
    assert not broker.send(1).is_done
    assert 2 == len(broker.verification.asked)


def test_only_the_partition_that_is_refused_fails(broker: Broker) -> None:
    reply = broker.send(0, partitions=(0, 1))
    other = TopicPartition(TOPIC, 1)
    broker.verification.answers[0].complete({PARTITION: NONE, other: ErrorCode.TRANSACTION_ABORTABLE})
    assert [NONE, ErrorCode.TRANSACTION_ABORTABLE] == broker.codes(reply)


def test_a_newer_epoch_is_verified_although_the_older_one_is_open(broker: Broker) -> None:
    broker.send(0)
    broker.verification.answer(0)
    assert not broker.send(0, epoch=1).is_done


def test_version_12_has_the_partition_added(broker: Broker) -> None:
    broker.is_verifying = False
    broker.send(0, version=12)
    assert [True] == [adds for *_, adds in broker.verification.asked]


def test_without_verification_batches_pass(broker: Broker) -> None:
    broker.is_verifying = False
    assert [NONE] == broker.codes(broker.send(0))


def test_a_partition_that_is_led_elsewhere_is_not_asked_about(broker: Broker) -> None:
    broker.host(leadership(leader=2, leader_epoch=4, replicas=(1, 2)))
    assert [ErrorCode.NOT_LEADER_OR_FOLLOWER] == broker.codes(broker.send(0))
    assert [] == broker.verification.asked


def test_leadership_that_is_lost_meanwhile_is_told(broker: Broker) -> None:
    reply = broker.send(0)
    broker.host(leadership(leader=2, leader_epoch=4, replicas=(1, 2)))
    broker.verification.answer(0)
    assert [ErrorCode.NOT_LEADER_OR_FOLLOWER] == broker.codes(reply)


def test_a_partition_that_is_led_only_since_the_request_came_is_refused(broker: Broker) -> None:
    """Its transaction was not asked about: no marker would end the transaction there."""
    broker.host(leadership(1, leader=2, leader_epoch=4, replicas=(1, 2)))
    reply = broker.send(0, partitions=(0, 1), version=12)
    broker.host(leadership(1, leader_epoch=5))
    broker.verification.answer(0)
    assert [NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER] == broker.codes(reply, 12)
    assert 0 == broker.partition(1).log.log_end_offset
    retried = broker.send(0, partitions=(1,), version=12)
    assert (TopicPartition(TOPIC, 1),) == broker.verification.asked[1][2]
    broker.verification.answer(1)
    assert [NONE] == broker.codes(retried, 12)


def test_a_partition_that_is_hosted_only_since_the_request_came_is_refused(broker: Broker) -> None:
    reply = broker.send(0, partitions=(0, 2), version=12)
    broker.host(leadership(2))
    broker.verification.answer(0)
    assert [NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER] == broker.codes(reply, 12)
    assert 0 == broker.partition(2).log.log_end_offset


def test_a_partition_that_is_led_only_since_the_request_came_takes_batches_without_verification(
    broker: Broker,
) -> None:
    first = broker.send(0)
    broker.is_verifying = False
    broker.host(leadership(1, leader=2, leader_epoch=4, replicas=(1, 2)))
    behind = broker.send(0, partitions=(1,))
    broker.host(leadership(1, leader_epoch=5))
    broker.verification.answer(0)
    assert [[NONE], [NONE]] == [broker.codes(first), broker.codes(behind)]


def test_a_batch_of_an_open_transaction_that_ends_while_the_batch_stands_in_line_is_refused(
    broker: Broker,
) -> None:
    """The producer gave up waiting and ended the transaction with the same epoch, as versions below 12 do."""
    broker.send(0)
    broker.verification.answer(0)
    first = broker.send(0, partitions=(1,))
    behind = broker.send(1)
    assert NONE is broker.mark(commit=False)
    broker.verification.answer(1, ErrorCode.CONCURRENT_TRANSACTIONS)
    assert [ErrorCode.NOT_ENOUGH_REPLICAS] == broker.codes(first)
    assert [ErrorCode.INVALID_TXN_STATE] == broker.codes(behind)
    assert 2 == broker.partition().log.log_end_offset
    assert 0 == broker.gate.waiting_count


MANY = tuple(range(2 * PARTITIONS_AT_ONCE))
LAST = TopicPartition(TOPIC, MANY[-1])


def marked_last(broker: Broker) -> Any:
    """Send a request that is appended in steps; write a marker to its last partition before the last step."""
    reply = broker.send(0, partitions=MANY)
    for each in range(len(broker.verification.answers)):
        broker.verification.answer(each)
    assert not reply.is_done
    assert NONE is broker.mark(commit=False, partition=LAST)
    return reply


async def test_a_marker_that_is_written_between_the_steps_of_an_append_voids_the_verification(
    broker: Broker,
) -> None:
    """A record behind the marker would be in a transaction that nobody ends."""
    broker.host(*map(leadership, MANY))
    reply = marked_last(broker)
    await value_of(reply)
    codes = broker.codes(reply)
    assert [NONE] * len(MANY[:-1]) == codes[:-1]
    assert ErrorCode.INVALID_TXN_STATE == codes[-1]
    assert 1 == broker.partition(MANY[-1]).log.log_end_offset
    assert not broker.partition(MANY[-1]).log.producer_state.is_in_transaction(9, 0)
    assert 0 == broker.gate.waiting_count


async def test_a_marker_that_is_written_between_the_steps_of_an_append_ends_an_open_transaction(
    broker: Broker,
) -> None:
    """The log had the transaction open when the request arrived, so the coordinator is not asked."""
    broker.host(*map(leadership, MANY))
    first = broker.send(0, partitions=MANY)
    broker.verification.answer(0)
    await value_of(first)
    reply = broker.send(1, partitions=MANY)
    assert NONE is broker.mark(commit=False, partition=LAST)
    await value_of(reply)
    codes = broker.codes(reply)
    assert [NONE] * len(MANY[:-1]) == codes[:-1]
    assert ErrorCode.INVALID_TXN_STATE == codes[-1]
    assert 1 == len(broker.verification.asked)


async def test_nothing_overtakes_a_request_that_is_appended_in_steps(broker: Broker) -> None:
    broker.host(*map(leadership, MANY))
    first, second = broker.send(0, partitions=MANY), broker.send(1, partitions=MANY[-1:])
    broker.verification.answer(1)
    broker.verification.answer(0)
    assert not first.is_done
    await value_of(first)
    await value_of(second)
    assert [NONE] * len(MANY) == broker.codes(first)
    assert [NONE] == broker.codes(second)
    assert 0 == broker.gate.waiting_count


@pytest.mark.parametrize("is_open", [False, True])
def test_a_marker_that_is_written_while_a_batch_is_opened_voids_the_verification(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    """A batch that takes long is appended when the background has opened it."""
    broker.configure(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    conversions = HeldConversions()
    if is_open:
        opened = broker.send(0)
        broker.verification.answer(0)
        assert [NONE] == broker.codes(opened)
    monkeypatch.setattr(broker.logs.resources, "conversions", conversions)
    reply = broker.send(int(is_open), value=bytes(500_000))
    if not is_open:
        broker.verification.answer(0)
    assert not reply.is_done
    assert NONE is broker.mark(commit=False)
    conversions.run()
    assert [ErrorCode.INVALID_TXN_STATE] == broker.codes(reply)
    assert not broker.partition().log.producer_state.is_in_transaction(9, 0)
    assert 0 == broker.gate.waiting_count


@pytest.mark.parametrize("is_heavy", [False, True])
def test_a_fault_in_an_append_leaves_nothing_waiting(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, is_heavy: bool
) -> None:
    """Its request would wait for ever, and with it all that the producer sends later."""
    broker.configure(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    conversions = HeldConversions()
    monkeypatch.setattr(broker.logs.resources, "conversions", conversions)
    first = broker.send(0, value=bytes(500_000) if is_heavy else b"a")
    second = broker.send(0, partitions=(1,))

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    if is_heavy:
        broker.verification.answer(0)
    with monkeypatch.context() as context:
        context.setattr(Admission, "refusal", fail)
        if is_heavy:
            conversions.run()
        else:
            broker.verification.answer(0)
    assert isinstance(first.error, ZeroDivisionError)
    broker.verification.answer(1)
    assert [NONE] == broker.codes(second)
    assert 0 == broker.gate.waiting_count


def test_offsets_are_verified_like_batches(broker: Broker) -> None:
    gate, producer = broker.gate, Identity(9, 0)
    answer = gate.verify("t", producer, PARTITION, adds=False)
    broker.verification.answer(0)
    assert NONE is answer.value
    voided = gate.verify("t", producer, PARTITION, adds=False)
    assert NONE is broker.mark()
    broker.verification.answer(1)
    assert ErrorCode.INVALID_TXN_STATE is voided.value
    elsewhere = gate.verify("t", producer, TopicPartition("other", 0), adds=False)
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER is elsewhere.value
    broker.is_verifying = False
    assert NONE is gate.verify("t", producer, PARTITION, adds=False).value


def test_the_end_of_the_transaction_before_is_waited_for(broker: Broker) -> None:
    """Transactions V2: the next begins at once, and its producer would come back after 100 ms only."""
    broker.send(0, version=12)
    broker.verification.answer(0)
    reply, behind = broker.send(0, epoch=1, version=12), broker.send(1, epoch=1, version=12)
    broker.verification.answer(1, ErrorCode.CONCURRENT_TRANSACTIONS)
    broker.verification.answer(2, ErrorCode.CONCURRENT_TRANSACTIONS)
    assert not reply.is_done
    assert NONE is broker.mark(epoch=1), "the marker of the end that raised the epoch"
    for _, again in broker.later:
        again()
    broker.verification.answer(4)
    assert not behind.is_done, "nothing overtakes"
    broker.verification.answer(3)
    assert [NONE] == broker.codes(reply, 12) == broker.codes(behind, 12)
    assert 0 == broker.gate.waiting_count


def test_patience_with_the_transaction_before_ends(broker: Broker) -> None:
    """A leader that is gone may hold its markers back for long: the producer must hear of it."""
    reply = broker.send(0, version=12)
    asked = 0
    while not reply.is_done:
        broker.verification.answer(asked, ErrorCode.CONCURRENT_TRANSACTIONS)
        asked += 1
        if len(broker.later) == asked:
            broker.later[-1][1]()
    assert [ErrorCode.NOT_ENOUGH_REPLICAS] == broker.codes(reply, 12)
    pauses = [seconds for seconds, _ in broker.later]
    assert pytest.approx(0.1) == sum(pauses)
    assert [0.002, 0.004] == pauses[:2]
    assert pauses == sorted(pauses[:-1]) + pauses[-1:]


def test_a_marker_of_the_transaction_before_costs_one_more_question(broker: Broker) -> None:
    """Its marker may be written while AddPartitionsToTxn is under way: the answer is NONE, the guard void."""
    broker.send(0, version=12)
    broker.verification.answer(0)
    reply, behind = broker.send(0, epoch=1, version=12), broker.send(1, epoch=1, version=12)
    assert NONE is broker.mark(epoch=1), "the marker of the end that raised the epoch"
    broker.verification.answer(1)
    broker.verification.answer(2)
    assert not reply.is_done
    for _, again in broker.later:
        again()
    broker.verification.answer(3)
    broker.verification.answer(4)
    assert [NONE] == broker.codes(reply, 12) == broker.codes(behind, 12)
    assert 0 == broker.gate.waiting_count


def test_markers_that_void_every_question_are_retried_by_the_producer(broker: Broker) -> None:
    reply = broker.send(0, version=12)
    asked = 0
    while not reply.is_done:
        assert NONE is broker.mark()
        broker.verification.answer(asked)
        asked += 1
        if len(broker.later) == asked:
            broker.later[-1][1]()
    assert [ErrorCode.NOT_ENOUGH_REPLICAS] == broker.codes(reply, 12)
    assert asked < 20


def test_a_marker_that_comes_while_the_batch_stands_in_line_is_retried_by_the_producer(
    broker: Broker,
) -> None:
    first, second = broker.send(0, version=12), broker.send(1, version=12)
    broker.verification.answer(1)
    assert NONE is broker.mark()
    broker.verification.answer(0, ErrorCode.PRODUCER_FENCED)
    assert [ErrorCode.INVALID_PRODUCER_EPOCH] == broker.codes(first, 12)
    assert [ErrorCode.NOT_ENOUGH_REPLICAS] == broker.codes(second, 12)


def test_offsets_wait_for_the_transaction_before(broker: Broker) -> None:
    gate, producer = broker.gate, Identity(9, 0)
    answer = gate.verify("t", producer, PARTITION, adds=True)
    broker.verification.answer(0, ErrorCode.CONCURRENT_TRANSACTIONS)
    assert NONE is broker.mark(), "the marker of the transaction before"
    broker.later[0][1]()
    broker.verification.answer(1)
    assert NONE is answer.value
    answer = gate.verify("t", producer, PARTITION, adds=False)
    broker.verification.answer(2, ErrorCode.CONCURRENT_TRANSACTIONS)
    assert ErrorCode.CONCURRENT_TRANSACTIONS is answer.value, "who verifies only has nothing to wait for"


def test_offsets_are_asked_about_again_after_a_marker_of_the_transaction_before(broker: Broker) -> None:
    answer = broker.gate.verify("t", Identity(9, 1), PARTITION, adds=True)
    assert NONE is broker.mark(epoch=1)
    broker.verification.answer(0)
    assert not answer.is_done
    broker.later[0][1]()
    broker.verification.answer(1)
    assert NONE is answer.value


def test_offsets_whose_every_question_is_voided_get_a_code_that_passes(broker: Broker) -> None:
    answer = broker.gate.verify("t", Identity(9, 0), PARTITION, adds=True)
    asked = 0
    while not answer.is_done:
        assert NONE is broker.mark()
        broker.verification.answer(asked)
        asked += 1
        if len(broker.later) == asked:
            broker.later[-1][1]()
    assert ErrorCode.CONCURRENT_TRANSACTIONS is answer.value


def test_markers_are_refused_where_they_cannot_be_written(broker: Broker) -> None:
    found: list[list[Codes]] = []
    unknown = TopicPartition("nowhere", 0)
    broker.marker_appends().write([Marker(9, 0, True, 0, (unknown,))], found.append)
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION is found[0][0][unknown]
    broker.is_verifying = False
    broker.send(0, epoch=5)
    assert ErrorCode.INVALID_PRODUCER_EPOCH is broker.mark(epoch=4)


def test_a_marker_counts_when_it_is_replicated(broker: Broker) -> None:
    broker.host(leadership(leader_epoch=4, replicas=(1, 2)))
    found: list[list[Codes]] = []
    broker.marker_appends().write([Marker(9, 0, True, 0, (PARTITION,))], found.append)
    assert [] == found
    broker.fetch({0: 1}, replica_id=2)
    assert [[{PARTITION: NONE}]] == found
    broker.marker_appends().write([Marker(9, 0, True, 0, (PARTITION,))], found.append)
    broker.advance(2000)
    assert [{PARTITION: ErrorCode.REQUEST_TIMED_OUT}] == found[1]
