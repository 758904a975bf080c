"""What a producer sent behind a refused batch is refused like it, until that one came again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda.broker.requests import refused_batches
from kalda.broker.requests.handlers import produce
from kalda.broker.requests.refused_batches import GAP_SECONDS, KEPT_SECONDS, RefusedBatches
from kalda.common.errors import ErrorCode
from tests.unit.broker.data_path_fakes import DataPath, batch, leadership

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    yield path
    path.close()


def numbered(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> bytes:
    return batch(b"a", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def codes(broker: DataPath, *sequences: int, acks: int = 1, epoch: int = 0) -> list[int]:
    return [broker.produce(numbered(each, epoch=epoch), acks=acks).error_code for each in sequences]


@pytest.mark.parametrize("replicas", [(1,), (1, 2)])
@pytest.mark.parametrize("known", [True, False])
def test_nothing_overtakes_what_came_before_the_broker_led(
    broker: DataPath, replicas: tuple[int, ...], known: bool
) -> None:
    """An unknown producer's second batch would be taken as its first, a known one's is out of sequence."""
    if known:
        broker.host(leadership(leader_epoch=3, replicas=replicas))
        assert [0] == codes(broker, 0)
    broker.host(leadership(leader=2, leader_epoch=4, replicas=(1, 2)))
    assert [NOT_LEADER] == codes(broker, 1)
    broker.host(leadership(leader_epoch=5, replicas=replicas))

    assert [NOT_LEADER, NOT_LEADER] == codes(broker, 2, 3)
    assert [0, 0, 0] == codes(broker, 1, 2, 3)
    assert not broker.refused_batches.by_producer


def test_nothing_overtakes_what_came_before_the_broker_knew_the_partition(broker: DataPath) -> None:
    broker.host(leadership(1))
    (refused,) = codes(broker, 0)
    assert 0 != refused
    broker.host(leadership(0))
    assert [refused] == codes(broker, 1)
    assert [0, 0] == codes(broker, 0, 1)


def test_nothing_overtakes_what_came_while_too_few_were_in_sync(broker: DataPath) -> None:
    broker.configure(min_insync_replicas=2)
    broker.host(leadership(leader_epoch=3, replicas=(1, 2), isr=(1,)))
    few = ErrorCode.NOT_ENOUGH_REPLICAS
    assert [few, few] == codes(broker, 0, 1, acks=-1)
    broker.host(leadership(leader_epoch=4, replicas=(1, 2)))
    assert [few] == codes(broker, 2, acks=-1)
    assert [0, 0, 0] == codes(broker, 0, 1, 2)


def test_a_producer_that_does_not_come_again_is_told_of_its_gap(broker: DataPath) -> None:
    broker.host(leadership(leader_epoch=3))
    codes(broker, 0)
    broker.host(leadership(leader=2, leader_epoch=4, replicas=(1, 2)))
    codes(broker, 1)
    broker.host(leadership(leader_epoch=5))
    broker.advance(int(KEPT_SECONDS * 1000))
    assert [OUT_OF_ORDER] == codes(broker, 2)


def test_a_refusal_that_stands_does_not_slow_other_producers(
    broker: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays where its producer went on with another leader."""
    broker.host(leadership(leader=2, leader_epoch=4, replicas=(1, 2)))
    codes(broker, 1)
    broker.host(leadership(leader_epoch=5))
    monkeypatch.setattr(produce, "_handle_general", None)
    assert 0 == broker.produce(numbered(0, producer_id=8)).error_code
    assert broker.refused_batches.by_producer


def moved_here(broker: DataPath) -> None:
    """Have the broker lead a log in which another leader wrote sequence 0."""
    broker.host(leadership(leader=2, leader_epoch=4, replicas=(1, 2)))
    broker.partition().log.append_as_follower(memoryview(bytearray(numbered(0))))
    broker.host(leadership(leader_epoch=5))


def test_a_new_leader_waits_for_a_batch_that_a_client_sends_late(broker: DataPath) -> None:
    """librdkafka may send what comes behind it first."""
    moved_here(broker)
    few = ErrorCode.NOT_ENOUGH_REPLICAS
    assert [few, few] == codes(broker, 3, 2)
    assert [0, 0, 0] == codes(broker, 1, 2, 3)
    assert not broker.refused_batches.by_producer
    assert [OUT_OF_ORDER] == codes(broker, 5), "it is this leader's own log that has a gap now"


def test_a_new_leader_does_not_wait_for_long_and_only_once(broker: DataPath) -> None:
    moved_here(broker)
    assert [ErrorCode.NOT_ENOUGH_REPLICAS] == codes(broker, 2)
    broker.advance(int(GAP_SECONDS * 1000))
    assert [OUT_OF_ORDER, OUT_OF_ORDER, 0, 0] == codes(broker, 2, 3, 1, 2)


def test_a_new_leader_waits_for_the_begin_of_a_new_epoch(broker: DataPath) -> None:
    moved_here(broker)
    assert [ErrorCode.NOT_ENOUGH_REPLICAS, 0, 0] == codes(broker, 1, 0, 1, epoch=1)


def test_what_is_behind_its_time_is_not_waited_for(broker: DataPath) -> None:
    moved_here(broker)
    older = batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0)
    assert OUT_OF_ORDER == broker.produce(older).error_code


def test_what_another_leader_took_is_missing_no_longer(broker: DataPath) -> None:
    broker.host(leadership(leader_epoch=3))
    codes(broker, 0)
    broker.host(leadership(leader=2, leader_epoch=4, replicas=(1, 2)))
    codes(broker, 1)
    partition = broker.partition()
    for offset, sequence in enumerate((1, 2), start=1):
        copy = bytearray(numbered(sequence))
        copy[:8] = offset.to_bytes(8, "big")
        partition.log.append_as_follower(memoryview(copy))
    broker.host(leadership(leader_epoch=5))
    assert [0] == codes(broker, 3)


def test_a_new_epoch_of_the_producer_begins_anew(broker: DataPath) -> None:
    broker.host(leadership(leader_epoch=3))
    codes(broker, 0)
    broker.host(leadership(leader=2, leader_epoch=4, replicas=(1, 2)))
    codes(broker, 1)
    broker.host(leadership(leader_epoch=5))
    assert [0, 0, 0] == codes(broker, 0, 1, 2, epoch=1)
    assert not broker.refused_batches.by_producer


def test_other_producers_and_partitions_go_on(broker: DataPath) -> None:
    broker.host(leadership(0, leader=2, replicas=(1, 2)), leadership(1))
    codes(broker, 0)
    broker.host(leadership(0, leader_epoch=5))
    other = batch(b"a", producer_id=8, producer_epoch=0, base_sequence=5)
    assert 0 == broker.produce(other).error_code
    assert 0 == broker.produce(batch(b"a")).error_code, "a batch without a producer id"
    assert 0 == broker.produce({1: numbered(1)}).error_code


def test_sequence_numbers_begin_again_at_zero(broker: DataPath) -> None:
    last = 2**31 - 1
    broker.host(leadership(leader=2, leader_epoch=4, replicas=(1, 2)))
    codes(broker, last)
    broker.host(leadership(leader_epoch=5))
    assert [NOT_LEADER, 0, 0] == codes(broker, 0, last, 0)


def test_what_is_kept_is_bounded_and_the_oldest_goes(
    broker: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_batches, "BATCHES_MAX", 2)
    refused = RefusedBatches(broker.clock)
    for producer_id in (7, 8, 7, 9):
        refused.note(b"a", 0, memoryview(numbered(0, producer_id=producer_id)), NOT_LEADER)
    assert [7, 9] == [key[2] for key in refused.by_producer]


@pytest.mark.parametrize("code", [ErrorCode.CORRUPT_MESSAGE, OUT_OF_ORDER, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_what_will_not_be_sent_again_is_not_waited_for(broker: DataPath, code: ErrorCode) -> None:
    refused = RefusedBatches(broker.clock)
    refused.note(b"a", 0, memoryview(numbered(0)), code)
    refused.note(b"a", 0, memoryview(b"short"), NOT_LEADER)
    refused.note(b"a", 0, None, NOT_LEADER)
    refused.note(b"a", 0, memoryview(batch(b"a")), NOT_LEADER)
    assert not refused.by_producer
