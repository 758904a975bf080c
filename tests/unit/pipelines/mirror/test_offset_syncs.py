"""Translation of offsets between a topic and its copy."""

import numpy as np
import pytest

from kalda.common.types import TopicPartition
from kalda.pipelines.mirror.offset_syncs import (
    RUNS_OF_CHUNK_MAX,
    OffsetSyncs,
    Run,
    Sync,
    SyncError,
    read_sync,
    runs_of,
    sync_key,
    sync_value,
)


def test_offsets_in_gaps_go_on_behind_the_last_record_before_them() -> None:
    syncs = OffsetSyncs([Run(0, 0, 10), Run(20, 11, 5)])

    assert [0, 9, 10, 10, 11, 13, 16, 16] == [
        syncs.translate(offset) for offset in (0, 9, 10, 15, 20, 22, 25, 99)
    ]


def test_an_offset_before_all_known_runs_has_no_translation() -> None:
    """The first known place would lie behind the true one, and the group would miss records."""
    assert OffsetSyncs([Run(20, 11, 5)]).translate(19) is None
    assert OffsetSyncs().translate(0) is None


def test_runs_that_join_become_one() -> None:
    syncs = OffsetSyncs([Run(0, 5, 10)])
    syncs.add([Run(0, 5, 10)])
    syncs.add([Run(10, 15, 10)])

    assert 24 == syncs.translate(19)


def test_what_is_copied_again_replaces_what_was_copied_before() -> None:
    """Without transactions, a crash repeats records."""
    syncs = OffsetSyncs([Run(0, 0, 10), Run(10, 12, 10)])
    syncs.add([Run(15, 30, 10)])

    assert [16, 30, 39, 40] == [syncs.translate(offset) for offset in (14, 15, 24, 25)]


def test_runs_break_where_either_side_has_a_gap() -> None:
    source = [np.array([0, 1, 2, 5]), np.array([6, 7])]

    assert [Run(0, 100, 3), Run(5, 103, 1), Run(6, 105, 2)] == runs_of(source, [(100, 4), (105, 2)])
    assert [] == runs_of([], [])


def test_many_runs_are_thinned_and_never_translate_too_far() -> None:
    """A heavily compacted topic has a gap behind each record."""
    count = 3 * RUNS_OF_CHUNK_MAX
    source = np.arange(0, 2 * count, 2)
    runs = runs_of([source], [(0, count)])

    assert len(runs) <= RUNS_OF_CHUNK_MAX
    syncs = OffsetSyncs(runs)
    for index, offset in enumerate(source.tolist()):
        found = syncs.translate(offset)
        assert found is not None
        assert found <= index


def test_records_of_the_topic_come_back() -> None:
    partition = TopicPartition("orders", 3)
    runs = [Run(0, 100, 3), Run(5, 103, 1)]

    sync = Sync("id", 7, runs)

    assert ("dr", partition, sync) == read_sync(sync_key("dr", partition), sync_value(sync))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b"{}"),
        (b"[1]", b"{}"),
        (b'["m","t",0]', b"[[1]]"),
        (b'["m","t",0]', b'{"id":"","position":1,"runs":[[1]]}'),
        (b"\xff", b""),
    ],
)
def test_junk_is_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(SyncError, match="was written by no mirror"):
        read_sync(key, value)
