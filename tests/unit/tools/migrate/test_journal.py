"""The journal of a roll outlives the process that wrote it, at every byte."""

import os
from pathlib import Path

import pytest

from kalda.common.types import TopicPartition
from kalda.tools.migrate.journal import Journal, JournalError, read_journal
from kalda.tools.migrate.walk import (
    Began,
    Doubted,
    Ended,
    Entered,
    Event,
    Measured,
    Offsets,
    Phase,
    Returned,
    Software,
    Swapped,
)

EVENTS: list[Event] = [
    Began(Software.KALDA),
    Measured(Offsets({TopicPartition("a", 0): 7}, {"g": {TopicPartition("a", 0): 3}})),
    Entered(1, Phase.STOP),
    Doubted("why"),
    Swapped(1),
    Returned(1),
    Ended(),
]


def write(path: Path) -> None:
    with Journal(path) as journal:
        for event in EVENTS:
            journal.append(event)


def test_events_are_read_as_they_were_written(tmp_path: Path) -> None:
    write(tmp_path / "j")
    assert EVENTS == read_journal(tmp_path / "j")


def test_there_is_no_event_without_a_journal(tmp_path: Path) -> None:
    assert [] == read_journal(tmp_path / "j")


def test_a_journal_that_was_cut_anywhere_has_its_whole_lines_and_takes_more(tmp_path: Path) -> None:
    write(tmp_path / "whole")
    data = (tmp_path / "whole").read_bytes()
    path = tmp_path / "j"
    for size in range(len(data)):
        path.write_bytes(data[:size])
        expected = EVENTS[: data[:size].count(b"\n")]
        assert expected == read_journal(path), size
    with Journal(path) as journal:
        journal.append(Swapped(9))
    assert [*EVENTS[:-1], Swapped(9)] == read_journal(path)


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    write(tmp_path / "j")
    lines = (tmp_path / "j").read_bytes().split(b"\n")
    lines[1] = b'{"event": "measured"}'
    (tmp_path / "j").write_bytes(b"\n".join(lines))
    with pytest.raises(JournalError, match="line 2 is no event"):
        read_journal(tmp_path / "j")


def test_a_journal_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="No such file"):
        Journal(tmp_path / "gone" / "j")


def test_no_second_run_opens_a_journal_that_is_being_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.yml.journal"
    with Journal(path) as journal:
        journal.append(Began(Software.KALDA))
        assert [Began(Software.KALDA)] == read_journal(path)
        with pytest.raises(JournalError, match=f"another `kalda migrate`, process {os.getpid()}, is at work"):
            Journal(path)
    with Journal(path):
        pass
