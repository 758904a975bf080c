"""A bit flips at rest: in what was synced, where a CRC or a look at the log can show it."""

from random import Random

import pytest

from kalda.records.batch import HEADER_SIZE
from kalda.records.record import RecordBatchBuilder
from kalda.simulation.damage import flip_bit
from kalda.simulation.disk import SimulatedDisk, SimulatedFileSystem

LOG = "/data/orders-0/00000000000000000000.log"


def batch(value: bytes) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(None, value, 0)
    return bytes(builder.build())


def disk_with(files: dict[str, bytes], unsynced: bytes = b"") -> SimulatedDisk:
    """Return a disk with synced files, to each of which something was written since."""
    disk = SimulatedDisk(Random(1), lambda: 0)
    system = SimulatedFileSystem(disk)
    system.make_directory("/data/orders-0")
    for path, content in files.items():
        file = system.open(path, create=True)
        file.write_at(content, 0)
        file.sync()
        file.write_at(unsynced, len(content))
    return disk


@pytest.mark.parametrize("seed", range(40))
def test_one_synced_bit_flips(seed: int) -> None:
    before = {LOG: batch(b"a" * 50) + batch(b"b" * 50), LOG.replace(".log", ".index"): b"\0" * 16}
    disk = disk_with(before, batch(b"c" * 50))

    path = flip_bit(disk, Random(seed))

    for name, content in before.items():
        found = disk.content(name)
        differing = [at for at, byte in enumerate(content) if found[at] != byte]
        assert (1 if name == path else 0) == len(differing)
        for at in differing:
            assert 1 == (found[at] ^ content[at]).bit_count()
            in_batch = at % len(batch(b"a" * 50))
            assert name != LOG or 8 <= in_batch < 12 or in_batch >= HEADER_SIZE
        assert batch(b"c" * 50) == found[len(content) :]


def test_nothing_flips_where_nothing_is_synced() -> None:
    disk = SimulatedDisk(Random(1), lambda: 0)
    system = SimulatedFileSystem(disk)
    system.make_directory("/data/orders-0")
    system.open(LOG, create=True).write_at(batch(b"a"), 0)

    assert {None} == {flip_bit(disk, Random(seed)) for seed in range(20)}


def test_no_checkpoint_flips() -> None:
    """They have no CRC: another digit is another valid number."""
    disk = disk_with({"/data/recovery-point-offset-checkpoint": b"0\n1\norders 0 5\n"})

    assert {None} == {flip_bit(disk, Random(seed)) for seed in range(20)}
