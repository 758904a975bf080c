"""Commits never pass the lowest record that is not acknowledged."""

import random

import pytest

from kalda.common.types import TopicPartition
from kalda.http.gateway.consumers.acks import Acks

HERE = TopicPartition("t", 0)


def test_nothing_is_committed_before_the_lowest_record_is_acknowledged() -> None:
    acks = Acks()
    for offset in (4, 5, 6):
        acks.deliver(HERE, offset)

    assert acks.ack(HERE, 5)
    assert {} == acks.to_commit()
    assert acks.ack(HERE, 4)
    assert {HERE: 6} == acks.to_commit()
    acks.committed({HERE: 6})
    assert {} == acks.to_commit()
    assert acks.ack(HERE, 6)
    assert {HERE: 7} == acks.to_commit()
    assert 0 == acks.unacked


def test_an_acknowledgement_counts_once_and_for_own_records_only() -> None:
    acks = Acks()
    acks.deliver(HERE, 0)

    assert acks.ack(HERE, 0)
    assert not acks.ack(HERE, 0)
    assert not acks.ack(TopicPartition("t", 1), 0)


def test_a_partition_that_went_away_is_forgotten() -> None:
    acks = Acks()
    acks.deliver(HERE, 0)
    acks.forget([HERE])

    assert not acks.ack(HERE, 0)
    assert {} == acks.to_commit()


def test_a_partition_that_is_read_again_begins_again() -> None:
    acks = Acks()
    for offset in (5, 6, 2):
        acks.deliver(HERE, offset)

    assert not acks.ack(HERE, 6)
    assert acks.ack(HERE, 2)
    assert {HERE: 3} == acks.to_commit()


@pytest.mark.parametrize("seed", range(20))
def test_commits_agree_with_a_model(seed: int) -> None:
    chance = random.Random(seed)
    acks = Acks()
    delivered: list[int] = []
    done: set[int] = set()
    committed = -1
    offset = 0
    for _ in range(300):
        if chance.random() < 0.5:
            acks.deliver(HERE, offset)
            delivered.append(offset)
            offset += chance.choice((1, 1, 3))
        elif delivered:
            one = chance.choice(delivered)
            assert (one not in done) is acks.ack(HERE, one)
            done.add(one)
        commit = acks.to_commit().get(HERE)
        if commit is not None:
            assert all(each in done for each in delivered if each < commit)
            assert commit > committed
            committed = commit
            acks.committed({HERE: commit})
    for one in delivered:
        acks.ack(HERE, one)
    if commit := acks.to_commit().get(HERE):
        committed = commit
    assert delivered[-1] + 1 == committed
