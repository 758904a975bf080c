"""Leader epochs: which entry answers, which entries go."""

import pytest

from kalda.storage.leader_epoch_cache import LeaderEpochFileCache
from tests.unit.storage.faulty_file_system import FaultyFileSystem


def epochs(*entries: tuple[int, int]) -> LeaderEpochFileCache:
    made = LeaderEpochFileCache(FaultyFileSystem(), "/log")
    for epoch, start_offset in entries:
        made.assign(epoch, start_offset)
    return made


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(-1, (-1, -1)), (0, (0, 10)), (1, (1, 30)), (2, (1, 30)), (3, (3, 50)), (4, (-1, -1))],
)
def test_end_offset_of_an_epoch(epoch: int, answer: tuple[int, int]) -> None:
    assert epochs((1, 10), (3, 30)).end_offset_for(epoch, 50) == answer


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ((2, 20), ((1, 10), (2, 20))),
        ((2, 25), ((1, 10), (2, 20))),
        ((2, 15), ((1, 10), (2, 15))),
        ((3, 20), ((1, 10), (3, 20))),
        ((3, 5), ((3, 5),)),
        ((1, 30), ((1, 30),)),
    ],
)
def test_assignment_drops_what_contradicts_it(
    new: tuple[int, int], expected: tuple[tuple[int, int], ...]
) -> None:
    made = epochs((1, 10), (2, 20))
    made.assign(*new)
    assert expected == made.entries


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ((1, 12, 19), ((1, 10), (2, 20), (4, 30))),
        ((2, 25, 29), ((1, 10), (2, 20), (4, 30))),
        ((4, 35, 39), ((1, 10), (2, 20), (4, 30))),
        ((5, 40, 40), ((1, 10), (2, 20), (4, 30), (5, 40))),
        ((1, 20, 20), ((1, 10),)),
        ((1, 15, 25), ((1, 10),)),
        ((2, 28, 30), ((1, 10), (2, 20))),
        ((3, 30, 33), ((1, 10), (2, 20), (3, 30))),
        ((0, 10, 11), ((0, 10),)),
    ],
)
def test_a_recovered_batch_decides_where_the_file_is_newer_than_the_log(
    batch: tuple[int, int, int], expected: tuple[tuple[int, int], ...]
) -> None:
    made = epochs((1, 10), (2, 20), (4, 30))
    made.recovered(*batch)
    assert expected == made.entries
    assert expected[-1][0] == made.latest_epoch


@pytest.mark.parametrize(
    ("end_offset", "expected"),
    [(31, ((1, 10), (2, 20), (3, 30))), (30, ((1, 10), (2, 20))), (20, ((1, 10),)), (0, ())],
)
def test_truncation_from_the_end(end_offset: int, expected: tuple[tuple[int, int], ...]) -> None:
    made = epochs((1, 10), (2, 20), (3, 30))
    made.truncate_from_end(end_offset)
    assert expected == made.entries
    assert (expected[-1][0] if expected else -1) == made.latest_epoch


@pytest.mark.parametrize(
    ("start_offset", "expected"),
    [
        (5, ((1, 10), (2, 20), (3, 30))),
        (10, ((1, 10), (2, 20), (3, 30))),
        (15, ((1, 15), (2, 20), (3, 30))),
        (20, ((2, 20), (3, 30))),
        (25, ((2, 25), (3, 30))),
        (99, ((3, 99),)),
    ],
)
def test_truncation_from_the_start(start_offset: int, expected: tuple[tuple[int, int], ...]) -> None:
    made = epochs((1, 10), (2, 20), (3, 30))
    made.truncate_from_start(start_offset)
    assert expected == made.entries


@pytest.mark.parametrize(("offset", "epoch"), [(9, None), (10, 1), (19, 1), (20, 2), (99, 2)])
def test_epoch_of_an_offset(offset: int, epoch: int | None) -> None:
    assert epoch == epochs((1, 10), (2, 20)).epoch_for_offset(offset)


def test_entries_come_back_from_the_file() -> None:
    made = epochs((1, 10), (2, 20))
    again = LeaderEpochFileCache(made._file_system, "/log")
    again.load()
    assert (again.entries, again.latest_epoch) == (made.entries, 2)


def test_a_failed_write_changes_nothing() -> None:
    made = epochs((1, 10))
    file_system = made._file_system
    assert isinstance(file_system, FaultyFileSystem)
    file_system.space_left = 0
    with pytest.raises(OSError, match="No space"):
        made.assign(2, 20)
    assert (((1, 10),), 1) == (made.entries, made.latest_epoch)


def test_an_epoch_that_a_full_disk_refuses_answers_and_is_written_with_the_next_assignment() -> None:
    """A leader on a full disk serves reads; `latest_epoch` has its first append assign the epoch again."""
    files = FaultyFileSystem()
    made = LeaderEpochFileCache(files, "/log")
    made.assign(3, 10)
    written = files.read(made.path)
    made.assign_unwritten(7, 30)
    assert ((3, 30), (3, 30), 3) == (
        made.end_offset_for(3, 30),
        made.end_offset_for(5, 30),
        made.latest_epoch,
    )
    assert written == files.read(made.path)
    made.assign(7, 30)
    assert (((3, 10), (7, 30)), 7) == (made.entries, made.latest_epoch)
    assert b"7 30\n" in files.read(made.path)


def test_a_replica_that_follows_forgets_the_epoch_in_which_it_wrote_nothing() -> None:
    made = epochs((3, 10), (5, 30))
    made.assign_unwritten(7, 30)
    made.forget_unwritten()
    assert (((3, 10), (5, 30)), 5) == (made.entries, made.latest_epoch)
    made.forget_unwritten()
    assert ((3, 10), (5, 30)) == made.entries
