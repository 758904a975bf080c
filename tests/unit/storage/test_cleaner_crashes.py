"""A cleaning that is killed: whatever the step, a start finds the old log or the new one."""

import contextlib
import functools
from collections.abc import Callable

import pytest

from kalda.records.control import ControlRecordType
from kalda.records.record import Record
from kalda.runtime.clock import ManualClock
from kalda.storage.log_types import FetchIsolation
from tests.unit.storage.cleaning_fixtures import CompactedBroker, compacted, contents, records_of
from tests.unit.storage.faulty_file_system import FaultyFileSystem
from tests.unit.storage.log_fixtures import NOW_MS

CONFIG = compacted(segment_bytes=500)
Restart = Callable[[FaultyFileSystem], FaultyFileSystem]


class KilledError(BaseException):
    """The process ends here: nothing may catch this."""


def killer(at: int) -> Callable[[str, str], None]:
    """Kill at the file operation of this number, counted from 0; a process that is dead does nothing more."""
    count = 0

    def fault(operation: str, path: str) -> None:
        nonlocal count
        count += 1
        if count > at:
            raise KilledError

    return fault


@functools.cache
def filled() -> CompactedBroker:
    """Several groups of several segments, with an aborted transaction, all on the device."""
    broker = CompactedBroker(CONFIG)
    broker.put((b"aborted", b"x"), producer_id=5, epoch=0, sequence=0, transactional=True)
    broker.mark(ControlRecordType.ABORT, 5)
    for number in range(40):
        broker.put((b"k%d" % (number % 9), b"%d" % number * 20), timestamp=NOW_MS + number)
    broker.log.flush()
    broker.manager.checkpoint_recovery_points()
    broker.manager.checkpoint_high_watermarks()
    return broker


def copy_of(broker: CompactedBroker) -> CompactedBroker:
    """The same log, opened anew after a kill."""
    return CompactedBroker(CONFIG, broker.file_system.crash(), ManualClock(NOW_MS))


def count_operations() -> int:
    broker = copy_of(filled())
    count = 0

    def fault(operation: str, path: str) -> None:
        nonlocal count
        count += 1

    broker.file_system.fault = fault
    assert broker.clean()
    return count


def survivors(broker: CompactedBroker) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {record.key: (record.offset, record.value) for record in committed(broker)}


def committed(broker: CompactedBroker, offset: int | None = None) -> list[Record]:
    """What a read_committed consumer gets."""
    broker.log.advance_high_watermark(broker.log.log_end_offset)
    return records_of(broker.log, offset, FetchIsolation.TXN_COMMITTED)


OPERATIONS = count_operations()


@pytest.mark.parametrize("restart", [FaultyFileSystem.crash, FaultyFileSystem.cut_power])
@pytest.mark.parametrize("at", range(OPERATIONS + 1))
def test_killed_at_any_file_operation(at: int, restart: Restart) -> None:
    """Before the step or with the power going out there: no record that survives is lost, none comes back."""
    source = filled()
    broker = copy_of(source)
    before = contents(committed(broker))
    wanted = survivors(broker)
    end_offset = broker.log.log_end_offset
    broker.file_system.fault = killer(at)
    with contextlib.suppress(KilledError):
        broker.clean()
    broker.file_system.fault = None

    again = CompactedBroker(CONFIG, restart(broker.file_system), ManualClock(NOW_MS))

    after = contents(committed(again))
    assert end_offset == again.log.log_end_offset
    assert wanted == survivors(again)
    assert set(after) <= set(before)
    assert after == sorted(after)
    assert not [name for name in again.file_names() if name.endswith((".cleaned", ".swap", ".deleted"))]
    again.clean()
    assert not again.clean()
    assert wanted == survivors(again)
    for offset in range(0, end_offset, 9):
        expected = [each for each in contents(committed(again)) if each[0] >= offset]
        assert expected == contents(committed(again, offset)), f"read from {offset}"


NAMED_POINTS = [
    ("the new files are written", "write", ".log.cleaned"),
    ("the new files are synced", "sync", ".log.cleaned"),
    ("the first file gets .swap", "rename", ".log.cleaned"),
    ("the last file gets .swap", "rename", ".timeindex.cleaned"),
    ("the first old file is marked", "rename", ".log"),
    ("the last old file is marked", "rename", ".timeindex"),
    ("the log loses .swap", "rename", ".log.swap"),
    ("the last file loses .swap", "rename", ".timeindex.swap"),
    ("the checkpoint is written", "replace", "cleaner-offset-checkpoint"),
]


@pytest.mark.parametrize(
    ("operation", "suffix"), [point[1:] for point in NAMED_POINTS], ids=[p[0] for p in NAMED_POINTS]
)
def test_killed_twice(operation: str, suffix: str) -> None:
    """Killed before the named step, and again at each operation of the start that tidies up."""
    broker = copy_of(filled())
    wanted = survivors(broker)

    def fault(seen: str, path: str) -> None:
        if seen == operation and path.endswith(suffix):
            raise KilledError

    broker.file_system.fault = fault
    with pytest.raises(KilledError):
        broker.clean()
    broker.file_system.fault = None
    left = broker.file_system.crash()

    for at in range(OPERATIONS * 10):
        files = left.crash()
        files.fault = killer(at)
        try:
            CompactedBroker(CONFIG, files, ManualClock(NOW_MS))
        except KilledError:
            files.fault = None
        else:
            assert at > 10
            return
        again = CompactedBroker(CONFIG, files.crash(), ManualClock(NOW_MS))
        assert wanted == survivors(again), f"killed again at operation {at}"
    raise AssertionError("the start does not come to its end")
