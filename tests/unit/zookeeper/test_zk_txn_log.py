"""The write-ahead log: what recovery makes of files that end anywhere, or are damaged."""

import errno
import struct

import pytest

from kalda.zookeeper.acl import Acl
from kalda.zookeeper.server.data_directory_errors import CorruptionError
from kalda.zookeeper.server.txn_log import TxnLog, frame, read_log
from kalda.zookeeper.server.txns import (
    OPEN_ACL,
    CheckTxn,
    CloseSessionTxn,
    CreateContainerTxn,
    CreateSessionTxn,
    CreateTtlTxn,
    CreateTxn,
    DeleteTxn,
    ErrorTxn,
    MultiTxn,
    SetAclTxn,
    SetDataTxn,
    Txn,
    decode_txn,
    encode_txn,
)
from tests.unit.zookeeper.memory_files import MemoryFileSystem

DIRECTORY = "/data/version-2"

BODIES = [
    CreateTxn("/a", b"data", OPEN_ACL, True, 7),
    CreateTxn("/ä/日本", None, (Acl(1, "digest", "u:p"), Acl(31, "ip", "::1")), False, 1),
    SetDataTxn("/a", b"", 2**31 - 1),
    SetDataTxn("/a", None, 1),
    DeleteTxn("/a"),
    CheckTxn("/a", 3),
    CreateSessionTxn(30_000),
    CloseSessionTxn(("/a", "/b")),
    CloseSessionTxn(()),
    CreateContainerTxn("/c", b"", OPEN_ACL, 3),
    CreateTtlTxn("/t", None, (Acl(31, "ip", "::1"),), 4, 2**40 - 1),
    SetAclTxn("/a", (Acl(1, "world", "anyone"), Acl(31, "digest", "u:p")), 2),
    ErrorTxn(-101),
    MultiTxn((CreateTxn("/a", b"x", OPEN_ACL, False, 1), CheckTxn("/b", 0), DeleteTxn("/c"))),
]


def txn(zxid: int) -> Txn:
    return Txn(5, 0, zxid, 1_700_000_000_000, SetDataTxn("/a", b"x" * zxid, zxid))


def log_with(files: MemoryFileSystem, *zxids: int) -> TxnLog:
    log = TxnLog(DIRECTORY, files, reserve_bytes=0)
    log.append([frame(encode_txn(txn(zxid))) for zxid in zxids], zxids[0])
    return log


def recovered(files: MemoryFileSystem, after: int = 0) -> list[int]:
    return [found.zxid for found in TxnLog(DIRECTORY, files).recover(after)]


@pytest.mark.parametrize("body", BODIES)
def test_transactions_survive_their_encoding(body: object) -> None:
    original = Txn(-5, 3, 2**40, 1_700_000_000_000, body)  # type: ignore[arg-type]  # parametrized over the union
    assert original == decode_txn(encode_txn(original))


def header(kind: int, zxid: int = 1) -> bytes:
    return struct.pack(">qiqqi", 5, 0, zxid, 0, kind)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        # create2 is a create; the digest of 3.6 and later follows every record.
        (
            header(15) + b"\0\0\0\2/a\0\0\0\1x" + bytes(4) + b"\1\0\0\0\7" + bytes(12),
            CreateTxn("/a", b"x", (), True, 7),
        ),
        # Before 3.4 a creation ended with the flag.
        (header(1) + b"\0\0\0\2/a\xff\xff\xff\xff" + bytes(5), CreateTxn("/a", None, (), False, -1)),
        (header(20) + b"\0\0\0\2/a", DeleteTxn("/a")),
        (header(16) + b"\0\0\0\2/a" + bytes(4) + b"\xff\xff\xff\xff", SetDataTxn("/a", b"", -1)),
        (header(-1) + struct.pack(">i", -110), ErrorTxn(-110)),
        # The end of a session without paths: with nothing behind it, and with a digest.
        (header(-11), CloseSessionTxn(None)),
        (header(-11) + struct.pack(">iq", 2, 0x1234567890), CloseSessionTxn(None)),
        # A multi that failed at its second operation.
        (
            header(14) + struct.pack(">iii", 2, 2, 6) + b"\0\0\0\2/a" + struct.pack(">iii", -1, 4, -103),
            ErrorTxn(-103),
        ),
    ],
)
def test_records_that_only_a_zookeeper_writes_are_read(record: bytes, expected: object) -> None:
    assert expected == decode_txn(record).body


def test_failed_request_without_a_number_of_its_own_is_passed_over() -> None:
    """A ZooKeeper that cannot read a request logs the failure under the number of the one before."""
    files = MemoryFileSystem()
    log = TxnLog(DIRECTORY, files, reserve_bytes=0)
    log.append([frame(encode_txn(txn(1))), frame(header(-1) + bytes(4)), frame(encode_txn(txn(2)))], 1)
    assert [1, 2] == recovered(files)


def test_numbers_jump_between_epochs_and_not_within_one() -> None:
    """Each leader of an ensemble counts from the start of its epoch, the upper half of the number."""
    files = MemoryFileSystem()
    epoch = 1 << 32
    log = TxnLog(DIRECTORY, files, reserve_bytes=0)
    for zxid in (1, 2, epoch + 1, 3 * epoch + 1, 3 * epoch + 2):
        log.append([frame(encode_txn(Txn(5, 0, zxid, 0, DeleteTxn("/a"))))], zxid)
    assert [1, 2, epoch + 1, 3 * epoch + 1, 3 * epoch + 2] == recovered(files)
    log.append([frame(encode_txn(Txn(5, 0, 3 * epoch + 4, 0, DeleteTxn("/a"))))], 3 * epoch + 4)
    with pytest.raises(CorruptionError, match="a file is missing"):
        recovered(files)


def test_file_has_zookeepers_layout() -> None:
    """ZooKeeper's own tools read these files, so the bytes are pinned."""
    files = MemoryFileSystem()
    payload = encode_txn(Txn(0x0102, 3, 4, 5, CreateTxn("/a", b"hi", OPEN_ACL, False, 1)))
    TxnLog(DIRECTORY, files, reserve_bytes=0).append([frame(payload)], 4)
    assert (
        "00000000000001020000000300000000000000040000000000000005000000010000000"
        "22f61000000026869000000010000001f00000005776f726c6400000006616e796f6e650000000001"
    ) == payload.hex()
    header = "5a4b4c47000000020000000000000000"
    assert {path: inode.data.hex() for path, inode in files.inodes.items()} == {
        f"{DIRECTORY}/log.4": header + struct.pack(">qi", 0x76540654, 76).hex() + payload.hex() + "42"
    }


def test_log_cut_at_each_byte_recovers_the_whole_records_before_the_cut() -> None:
    """A crash may stop a write anywhere; what was complete before must be found, and nothing else."""
    files = MemoryFileSystem()
    log_with(files, 1, 2, 3)
    ((path, inode),) = files.inodes.items()
    whole = bytes(inode.data)
    ends = [16]
    for zxid in (1, 2, 3):
        ends.append(ends[-1] + len(frame(encode_txn(txn(zxid)))))
    assert len(whole) == ends[-1]
    for size in range(len(whole) + 1):
        inode.data = bytearray(whole[:size])
        files.inodes[path] = inode
        complete = [zxid for zxid, end in zip((1, 2, 3), ends[1:], strict=True) if end <= size]
        assert complete == recovered(files), f"cut at {size}"
        # What recovery leaves is not torn.
        assert path not in files.inodes or read_log(bytes(inode.data)).is_tail_zero


def test_damaged_byte_ends_the_log_there() -> None:
    """Each byte is covered by the frame's checks; a record that differs in any is not taken for good."""
    files = MemoryFileSystem()
    log_with(files, 1, 2)
    (inode,) = files.inodes.values()
    whole = bytes(inode.data)
    second = 16 + len(frame(encode_txn(txn(1))))
    for position in range(second, len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x40
        assert [1] == [found.zxid for found in read_log(bytes(damaged)).txns], f"damaged at {position}"


@pytest.mark.parametrize("tail", [bytes(100), b"\xff" * 100, b"B" * 13, b"\x00" * 11 + b"\x01\x00B"])
def test_nonsense_in_the_tail_is_cut_off(tail: bytes) -> None:
    """Zeros are what a file system leaves after a power cut, the rest is what it should not leave."""
    files = MemoryFileSystem()
    log_with(files, 1, 2)
    (inode,) = files.inodes.values()
    whole = bytes(inode.data)
    inode.data += tail
    assert [1, 2] == recovered(files)
    # Zeros stay: they are room that the next process may need.
    assert inode.data == (whole if tail.strip(b"\x00") else whole + tail)


def test_damage_before_the_last_file_stops_the_start() -> None:
    """Later files prove that the record was acknowledged: starting without it would lose changes silently."""
    files = MemoryFileSystem()
    log = log_with(files, 1, 2)
    log.roll()
    log.append([frame(encode_txn(txn(3)))], 3)
    first = files.inodes[f"{DIRECTORY}/log.1"]
    first.data[-3] ^= 1
    with pytest.raises(CorruptionError, match=r"log\.1 has a bad record"):
        recovered(files)


def contents_of(files: MemoryFileSystem) -> dict[str, bytes]:
    return {path: bytes(inode.data) for path, inode in files.inodes.items()}


def test_damaged_byte_before_the_last_record_stops_the_start_and_changes_nothing() -> None:
    """The intact record behind it proves that the bad one was acknowledged, and so was all in between."""
    files = MemoryFileSystem()
    log_with(files, 1, 2, 3)
    ((path, inode),) = files.inodes.items()
    inode.data += bytes(1000)
    files.open(f"{DIRECTORY}/log.4", create=True)
    whole = bytes(inode.data)
    first = 16 + len(frame(encode_txn(txn(1))))
    second = first + len(frame(encode_txn(txn(2))))
    for position in range(second):
        inode.data[position] ^= 0x40
        before = contents_of(files)
        with pytest.raises(CorruptionError, match=rf"^{path} has a bad record at byte \d+ of {len(whole)}"):
            recovered(files)
        assert before == contents_of(files), f"damaged at {position}"
        inode.data[position] ^= 0x40
    assert [1, 2, 3] == recovered(files)


def test_damage_is_told_with_its_place_and_what_can_be_done() -> None:
    """An operator decides on this line alone, so it must say what each way out costs."""
    files = MemoryFileSystem()
    log_with(files, 1, 2, 3)
    ((path, inode),) = files.inodes.items()
    first = 16 + len(frame(encode_txn(txn(1))))
    second = first + len(frame(encode_txn(txn(2))))
    inode.data[first + 20] ^= 1
    with pytest.raises(CorruptionError) as raised:
        recovered(files)
    assert str(raised.value) == (
        f"{path} has a bad record at byte {first} of {len(inode.data)}, and an intact record stands at byte "
        f"{second}: the file is damaged, and was left as it is. Restore {DIRECTORY} from a copy, or give up "
        f"every change after zxid 0x1: `truncate -s {first} {path}`"
    )
    inode.data = inode.data[:first]
    assert [1] == recovered(files)


def test_intact_record_of_an_unknown_kind_is_not_cut_off() -> None:
    """Its checksum holds, so it was written so: by a later version, not by a crash."""
    files = MemoryFileSystem()
    log_with(files, 1)
    (inode,) = files.inodes.values()
    payload = bytearray(encode_txn(txn(2)))
    payload[28:32] = struct.pack(">i", 99)
    inode.data += frame(bytes(payload))
    with pytest.raises(CorruptionError, match="bad record"):
        recovered(files)


def test_damaged_file_leaves_those_before_it_as_they_are() -> None:
    files = MemoryFileSystem()
    log = log_with(files, 1, 2)
    log.roll()
    log.append([frame(encode_txn(txn(zxid))) for zxid in (3, 4)], 3)
    files.inodes[f"{DIRECTORY}/log.1"].data += bytes(100)
    files.inodes[f"{DIRECTORY}/log.3"].data[30] ^= 1
    before = contents_of(files)
    with pytest.raises(CorruptionError, match=r"log\.3 has a bad record .* after zxid 0x2"):
        recovered(files)
    assert before == contents_of(files)


def test_missing_file_stops_the_start() -> None:
    files = MemoryFileSystem()
    log = log_with(files, 1, 2)
    for zxid in (3, 4):
        log.roll()
        log.append([frame(encode_txn(txn(zxid)))], zxid)
    del files.inodes[f"{DIRECTORY}/log.3"]
    with pytest.raises(CorruptionError, match="0x3 is next"):
        recovered(files)


def test_recovery_after_a_snapshot_skips_what_it_covers() -> None:
    files = MemoryFileSystem()
    log = log_with(files, 1, 2)
    log.roll()
    log.append([frame(encode_txn(txn(zxid))) for zxid in (3, 4)], 3)
    assert [1, 2, 3, 4] == recovered(files, after=0)
    assert [4] == recovered(files, after=3)
    assert [] == recovered(files, after=4)


def test_purge_keeps_what_the_oldest_snapshot_needs() -> None:
    files = MemoryFileSystem()
    log = log_with(files, 1, 2)
    for zxid in (3, 4, 5):
        log.roll()
        log.append([frame(encode_txn(txn(zxid)))], zxid)
    log.purge(oldest_snapshot_zxid=3)
    assert [f"{DIRECTORY}/log.4", f"{DIRECTORY}/log.5"] == sorted(files.inodes)
    assert [4, 5] == recovered(files, after=3)


def test_large_file_is_followed_by_a_new_one() -> None:
    files = MemoryFileSystem()
    log = TxnLog(DIRECTORY, files, file_bytes_max=100, reserve_bytes=0)
    for zxid in (1, 2, 3):
        log.append([frame(encode_txn(txn(zxid)))], zxid)
    assert [f"{DIRECTORY}/log.1", f"{DIRECTORY}/log.3"] == sorted(files.inodes)
    assert [1, 2, 3] == recovered(files)


@pytest.mark.parametrize("room", range(0, 120, 7))
def test_append_after_a_partial_write_leaves_no_torn_record_between(room: int) -> None:
    """The device took a part and no more: the next record must not follow that part."""
    files = MemoryFileSystem()
    log = log_with(files, 1)
    files.room = room
    with pytest.raises(OSError, match="no space left"):
        log.append([frame(encode_txn(txn(zxid))) for zxid in (2, 3)], 2)
    files.room = None
    log.append([frame(encode_txn(txn(2)))], 2)
    (inode,) = files.inodes.values()
    assert read_log(bytes(inode.data)).file_size == read_log(bytes(inode.data)).valid_size
    assert [1, 2] == recovered(files)


def test_refused_records_do_not_come_back_behind_those_that_replaced_them() -> None:
    """A sync failed: its second record is whole, and would stand right behind a new first one of its size."""
    files = MemoryFileSystem()
    log = log_with(files, 1)
    first, second = (
        frame(encode_txn(Txn(5, 0, zxid, 0, SetDataTxn("/a", b"same size", zxid)))) for zxid in (2, 3)
    )
    files.failures["sync"] = OSError(errno.EIO, "input/output error")
    with pytest.raises(OSError, match="input/output"):
        log.append([first, second], 2)
    files.failures.clear()
    log.append([first], 2)
    files.crash(lambda size: size)
    assert [1, 2] == recovered(files)


def test_file_begun_and_given_up_does_not_hide_the_records_of_the_one_before() -> None:
    files = MemoryFileSystem()
    log_with(files, 1, 2, 3, 4)
    whole = bytes(files.inodes[f"{DIRECTORY}/log.1"].data)
    files.open(f"{DIRECTORY}/log.3", create=True).write_at(whole[:16], 0)
    assert [4] == recovered(files, after=3)
    assert [f"{DIRECTORY}/log.1"] == list(files.inodes)


def test_new_file_that_finds_no_room_leaves_the_old_one_in_use() -> None:
    """Snapshots ask for a new file; a full disk must not make that refuse changes that still fit."""
    files = MemoryFileSystem()
    log = TxnLog(DIRECTORY, files, reserve_bytes=1000)
    log.append([frame(encode_txn(txn(1)))], 1)
    log.roll()
    files.room = 10
    log.append([frame(encode_txn(txn(2)))], 2)
    files.room = None
    log.append([frame(encode_txn(txn(3)))], 3)
    assert [f"{DIRECTORY}/log.1", f"{DIRECTORY}/log.3"] == sorted(files.inodes)
    assert len(files.inodes[f"{DIRECTORY}/log.1"].data) == sum(
        (16, len(frame(encode_txn(txn(1)))), len(frame(encode_txn(txn(2)))))
    )
    assert [1, 2, 3] == recovered(files)


def reopened(files: MemoryFileSystem, after: int = 0) -> TxnLog:
    log = TxnLog(DIRECTORY, files, reserve_bytes=1000)
    assert list(log.recover(after))
    return log


@pytest.mark.parametrize("is_closed", [True, False])
def test_next_process_goes_on_in_the_room_that_the_last_one_put_by(is_closed: bool) -> None:
    files = MemoryFileSystem()
    log = TxnLog(DIRECTORY, files, reserve_bytes=1000)
    log.append([frame(encode_txn(txn(1)))], 1)
    files.room = 0
    for zxid in range(2, 8):
        if is_closed:
            log.close()
        log = reopened(files)
        log.append([frame(encode_txn(txn(zxid)))], zxid)
        assert [f"{DIRECTORY}/log.1"] == list(files.inodes)
    assert list(range(1, 8)) == recovered(files)


def test_close_after_a_failed_write_leaves_only_zeros_behind_the_records() -> None:
    """What was refused must not be found by the next process, and the room must not be given away."""
    files = MemoryFileSystem()
    log = TxnLog(DIRECTORY, files, reserve_bytes=1000)
    log.append([frame(encode_txn(txn(1)))], 1)
    files.failures["sync"] = OSError(errno.EIO, "input/output error")
    with pytest.raises(OSError, match="input/output"):
        log.append([frame(encode_txn(txn(2)))], 2)
    files.failures.clear()
    log.close()
    (inode,) = files.inodes.values()
    assert read_log(bytes(inode.data)).is_tail_zero
    assert len(inode.data) > 1000
    assert [1] == recovered(files)


def test_file_that_a_snapshot_covers_is_followed_by_a_new_one() -> None:
    """So that it can be purged, and is not read again at each start."""
    files = MemoryFileSystem()
    log_with(files, 1, 2)
    log = TxnLog(DIRECTORY, files, reserve_bytes=0)
    assert [] == list(log.recover(after_zxid=2))
    log.append([frame(encode_txn(txn(3)))], 3)
    assert [f"{DIRECTORY}/log.1", f"{DIRECTORY}/log.3"] == sorted(files.inodes)
    assert [1, 2, 3] == recovered(files)


def test_file_that_ends_before_the_snapshot_is_not_gone_on_in() -> None:
    """Its transactions would have a gap, which stops a later start from an older snapshot."""
    files = MemoryFileSystem()
    log_with(files, 1, 2)
    log = TxnLog(DIRECTORY, files, reserve_bytes=0)
    assert [] == list(log.recover(after_zxid=5))
    log.append([frame(encode_txn(txn(6)))], 6)
    assert [f"{DIRECTORY}/log.1", f"{DIRECTORY}/log.6"] == sorted(files.inodes)


def test_file_that_could_not_be_begun_leaves_no_trace() -> None:
    files = MemoryFileSystem()
    log = log_with(files, 1)
    log.roll()
    files.room = 5
    with pytest.raises(OSError, match="no space left") as raised:
        log.append([frame(encode_txn(txn(2)))], 2)
    assert errno.ENOSPC == raised.value.errno
    files.room = None
    log.append([frame(encode_txn(txn(2)))], 2)
    assert [1, 2] == recovered(files)
