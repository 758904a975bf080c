"""Whether a full directory has room: the reserve, and the file that is tried."""

import errno

import pytest

from kalda.storage.space_probe import PROBE_BYTES, RESERVE_BYTES_MAX, check_room, reserve_bytes
from tests.unit.storage.faulty_file_system import FaultyFileSystem


def unknown(_: str) -> tuple[int, int]:
    return -1, -1


@pytest.mark.parametrize(
    ("total", "reserve"),
    [(0, PROBE_BYTES), (10 * 1024**3, 10 * 1024**3 // 100), (100 * 1024**4, RESERVE_BYTES_MAX)],
)
def test_the_reserve_is_a_hundredth_within_bounds(total: int, reserve: int) -> None:
    assert reserve == reserve_bytes(total)


def test_the_file_is_removed_whether_or_not_it_fits() -> None:
    files = FaultyFileSystem()
    check_room(files, "/disk", unknown)
    assert {} == files.nodes
    files.space_left = PROBE_BYTES - 1
    with pytest.raises(OSError, match="No space") as raised:
        check_room(files, "/disk", unknown)
    assert errno.ENOSPC == raised.value.errno
    assert {} == files.nodes


def test_nothing_is_written_while_the_volume_lacks_its_reserve() -> None:
    files = FaultyFileSystem()
    actions: list[str] = []
    files.fault = lambda action, _: actions.append(action)
    with pytest.raises(OSError, match="5 bytes are free"):
        check_room(files, "/disk", lambda _: (1024**3, 5))
    assert [] == actions
