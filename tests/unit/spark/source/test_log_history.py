"""A topic that was created again, or a log that lost its end, is noticed although the offsets fit."""

from uuid import UUID

import pytest

from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.spark.source.data_loss import DataLossError
from kalda.spark.source.group_offsets import Committed, _from_commit, metadata_of
from kalda.spark.source.log_history import LogHistory, check_reincarnations, check_truncations

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = UUID(int=1), UUID(int=2)


def test_a_change_of_id_is_reported_once() -> None:
    history = LogHistory()

    assert {} == history.saw_topics({"t": OLD})
    assert {"t": OLD} == history.saw_topics({"t": NEW})
    assert {} == history.saw_topics({"t": NEW})
    assert NEW == history.topic_id("t")


def test_a_cluster_without_ids_says_nothing() -> None:
    history = LogHistory()

    assert {} == history.saw_topics({"t": ZERO_UUID})
    assert {} == history.saw_topics({"t": NEW})
    assert {} == history.saw_topics({"t": ZERO_UUID})
    check_reincarnations({"t": OLD}, {"t": ZERO_UUID}, fail=True)
    check_reincarnations({"t": OLD}, {}, fail=True)


def test_the_message_names_the_ways_out() -> None:
    with pytest.raises(DataLossError, match=r"created again.*new checkpoint") as raised:
        check_reincarnations({"t": OLD}, {"t": NEW}, fail=True)
    assert 1 == len(str(raised.value).splitlines())
    with pytest.raises(DataLossError, match=r"created again.*Delete the offsets of group g"):
        check_reincarnations({"t": OLD}, {"t": NEW}, fail=True, group_id="g")


def test_epochs_are_asked_for_only_after_a_change_of_leader() -> None:
    history = LogHistory()
    history.saw_ends({T0: 100, T1: 50}, {T0: 3, T1: 3})

    assert {} == history.epochs_to_check({T0: 100, T1: 50}, {T0: 3, T1: 3})
    assert {T0: 3} == history.epochs_to_check({T0: 100, T1: 50}, {T0: 4, T1: 3})
    # A start that lies behind what is known cannot be checked.
    assert {} == history.epochs_to_check({T0: 101}, {T0: 4})


def test_a_truncated_log() -> None:
    check_truncations({T0: 100}, {T0: 100}, fail=True)
    check_truncations({T0: 100}, {T0: None}, fail=True)
    check_truncations({T0: 100}, {T0: 90}, fail=False)
    with pytest.raises(DataLossError, match=r"truncated to 90 after this query had read up to 100"):
        check_truncations({T0: 100}, {T0: 90}, fail=True)


def test_commits_carry_the_id_and_the_epoch_of_their_offset() -> None:
    history = LogHistory()
    history.saw_topics({"t": OLD})
    history.saw_ends({T0: 100, T1: 50}, {T0: 3, T1: 3})

    assert {T0: Committed(100, OLD, 3), T1: Committed(20, OLD, None)} == history.commits({T0: 100, T1: 20})


def test_what_an_earlier_run_committed_counts_until_something_newer_is_seen() -> None:
    history = LogHistory()

    history.remember({T0: Committed(100, OLD, 3), T1: Committed(5)})

    assert {T0: 3} == history.epochs_to_check({T0: 100, T1: 5}, {T0: 4, T1: 4})
    assert {"t": OLD} == history.saw_topics({"t": NEW})


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{}", '{"topic_id":5}', '{"topic_id":"x"}', "null", "[" * 9999]
)
def test_metadata_of_other_programs_is_no_id(text: str) -> None:
    assert Committed(7) == _from_commit(OffsetAndMetadata(7, text))


def test_metadata_round_trip() -> None:
    assert Committed(7, OLD, 2) == _from_commit(OffsetAndMetadata(7, metadata_of(OLD), 2))
    assert Committed(7) == _from_commit(OffsetAndMetadata(7, metadata_of(ZERO_UUID)))
