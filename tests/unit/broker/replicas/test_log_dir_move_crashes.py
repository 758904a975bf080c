"""A move that is killed, or loses its power, at each of its file operations, and the next start likewise.

The partition is in one log directory, with all its records, and the move ends.
"""

from collections.abc import Callable

import pytest

from tests.unit.broker.replicas.log_dir_move_fixtures import A, B, MovingBroker
from tests.unit.storage.faulty_file_system import FaultyFileSystem
from tests.unit.storage.log_fixtures import append, read_all, values_of

RECORDS = 12
LATER = 3
Restart = Callable[[FaultyFileSystem], FaultyFileSystem]


class KilledError(BaseException):
    """The process ends here: nothing may catch this."""


class Killer:
    """Kills at the file operation of a number, counted from 0; a dead process does nothing more."""

    def __init__(self, at: int | None = None) -> None:
        self.count = 0
        self._at = at

    def __call__(self, operation: str, path: str) -> None:
        self.count += 1
        if self._at is not None and self.count > self._at:
            raise KilledError


def filled() -> MovingBroker:
    """A log whose first records are on the device, as a checkpoint says."""
    broker = MovingBroker()
    for number in range(RECORDS):
        append(broker.log, b"%d" % number, leader_epoch=number // 5)
    broker.log.flush()
    broker.manager.checkpoint_recovery_points()
    broker.manager.checkpoint_high_watermarks()
    return broker


def move(broker: MovingBroker) -> None:
    broker.alter(B)
    broker.advance()
    for number in range(RECORDS, RECORDS + LATER):
        append(broker.log, b"%d" % number, leader_epoch=4)
    broker.manager.checkpoint_recovery_points()
    broker.clock.advance(60)
    broker.manager.deletion_step()


def operations() -> int:
    broker = filled()
    counter = broker.file_system.fault = Killer()
    move(broker)
    return counter.count


OPERATIONS = operations()


def killed(broker: MovingBroker, at: int, work: Callable[[MovingBroker], None]) -> int:
    """Kill the work at an operation; return how many of the records were appended before."""
    broker.file_system.fault = Killer(at)
    with pytest.raises(KilledError):
        work(broker)
    return broker.log.log_end_offset


def check(again: MovingBroker, appended: int, restart: str) -> None:
    least = appended if restart == "crash" else RECORDS
    found = values_of(read_all(again.log))
    assert least <= len(found) <= RECORDS + LATER
    assert [b"%d" % number for number in range(len(found))] == found
    end = len(found)
    if again.future is not None:
        assert A == again.place
        again.advance()
        assert B == again.place
    append(again.log, b"%d" % end, leader_epoch=5)
    assert [b"%d" % number for number in range(end + 1)] == values_of(read_all(again.log))
    again.clock.advance(60)
    again.manager.deletion_step()
    assert [f"{again.place}/orders-0"] == again.directories()
    assert f"{again.place}/orders-0/replaced-directories" not in again.file_system.nodes
    assert 0 == again.log.missing.count


@pytest.mark.parametrize("restart", ["crash", "cut_power"])
@pytest.mark.parametrize("at", range(OPERATIONS))
def test_a_move_that_is_killed_loses_nothing(at: int, restart: str) -> None:
    broker = filled()
    appended = killed(broker, at, move)
    files = getattr(broker.file_system, restart)()
    check(MovingBroker(broker.config, files, broker.clock), appended, restart)


@pytest.mark.parametrize("restart", ["crash", "cut_power"])
@pytest.mark.parametrize("at", range(0, OPERATIONS, 7))
def test_a_start_after_a_kill_that_is_killed_loses_nothing(at: int, restart: str) -> None:
    broker = filled()
    appended = killed(broker, at, move)
    before = getattr(broker.file_system, restart)()
    again = 0
    while True:
        files = before.crash()
        files.fault = Killer(again)
        try:
            MovingBroker(broker.config, files, broker.clock)
        except KilledError:
            after = getattr(files, restart)()
            check(MovingBroker(broker.config, after, broker.clock), appended, restart)
        else:
            return
        again += 5
