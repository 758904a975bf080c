"""Kafka's own bytes: each file of a log directory as Apache Kafka 3.9 writes it."""

import uuid

import pytest

from kalda.common.types import TopicPartition, uuid_from_text
from kalda.storage.checkpoints import (
    MetaProperties,
    format_leader_epochs,
    format_meta_properties,
    format_offset_checkpoint_lines,
    format_partition_metadata,
    offset_checkpoint_line,
    parse_leader_epochs,
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from kalda.storage.errors import CorruptCheckpointError, CorruptIndexError, CorruptSnapshotError
from kalda.storage.file_names import (
    delete_directory_name,
    is_delete_directory,
    parse_offset_file_name,
    parse_partition_directory_name,
)
from kalda.storage.log_caches import FifoCache
from kalda.storage.offset_index import OffsetIndex, OffsetPosition
from kalda.storage.producer_snapshot import format_snapshot, parse_snapshot
from kalda.storage.producer_state_entry import BatchMetadata, ProducerStateEntry
from kalda.storage.time_index import TimeIndex, TimestampOffset
from kalda.storage.transaction_index import AbortedTransaction, TransactionIndex
from tests.unit.storage.faulty_file_system import FaultyFileSystem, Node

SNAPSHOT = bytes.fromhex(
    "0001"  # version
    "2a6ad9b9"  # CRC-32C of the rest
    "00000001"  # one producer
    "00000000000003e9"  # producer id 1001
    "0002"  # epoch
    "0000002a"  # last sequence 42
    "0000000000000190"  # last offset 400
    "00000009"  # offset delta
    "0000018bcfe56800"  # timestamp
    "ffffffff"  # coordinator epoch
    "0000000000000187"  # open transaction since 391
)


def snapshot_entry() -> ProducerStateEntry:
    entry = ProducerStateEntry(1001, 2, -1, 1_700_000_000_000, 391)
    entry.batches.append(BatchMetadata(42, 400, 9, 1_700_000_000_000))
    return entry


def test_producer_snapshot() -> None:
    assert format_snapshot([snapshot_entry()]).hex() == SNAPSHOT.hex()
    (entry,) = parse_snapshot(SNAPSHOT)
    assert SNAPSHOT == format_snapshot([entry])
    assert (1001, 2, 391) == (entry.producer_id, entry.producer_epoch, entry.current_transaction_first_offset)
    assert 33 == entry.batches[-1].first_sequence


def test_an_empty_producer_snapshot_has_ten_bytes() -> None:
    assert "0001" + "48674bc7" + "00000000" == format_snapshot([]).hex()
    assert [] == parse_snapshot(format_snapshot([]))


def test_a_producer_without_batches_has_no_last_offset() -> None:
    entry = ProducerStateEntry(5, 1, 3, 9)
    assert "ffffffff" + "ffffffffffffffff" + "00000000" == format_snapshot([entry])[10 + 10 : 10 + 26].hex()
    assert not parse_snapshot(format_snapshot([entry]))[0].batches


def test_a_harmed_snapshot_is_recognised() -> None:
    for length in range(len(SNAPSHOT)):
        with pytest.raises(CorruptSnapshotError):
            parse_snapshot(SNAPSHOT[:length])
    for position in range(len(SNAPSHOT)):
        harmed = bytearray(SNAPSHOT)
        harmed[position] ^= 1
        with pytest.raises(CorruptSnapshotError):
            parse_snapshot(bytes(harmed))


def test_offset_index() -> None:
    file_system = FaultyFileSystem()
    index = OffsetIndex(file_system, "/0.index", 1000, 0, FifoCache(1000))
    index.append(1005, 0x1000)
    index.append(1300, 0x2FFF)
    index.write_pending()
    assert "00000005" + "00001000" + "0000012c" + "00002fff" == file_system.read("/0.index").hex()
    loaded = OffsetIndex(file_system, "/0.index", 1000, 16, FifoCache(1000))
    assert [
        OffsetPosition(1000, 0),
        OffsetPosition(1000, 0),
        OffsetPosition(1005, 0x1000),
        OffsetPosition(1005, 0x1000),
        OffsetPosition(1300, 0x2FFF),
        OffsetPosition(1300, 0x2FFF),
    ] == [loaded.lookup(offset) for offset in (1000, 1004, 1005, 1299, 1300, 9999)]
    assert OffsetPosition(1300, 0x2FFF) == loaded.first_at_position(0x1001)
    assert loaded.first_at_position(0x3000) is None


def test_time_index() -> None:
    file_system = FaultyFileSystem()
    index = TimeIndex(file_system, "/0.timeindex", 1000, 0, FifoCache(1000))
    for timestamp, offset in (
        (1_700_000_000_000, 1005),
        (1_700_000_000_000, 1100),
        (1_700_000_000_001, 1300),
    ):
        index.maybe_append(timestamp, offset)
    index.write_pending()
    assert ("0000018bcfe56800" + "00000005" + "0000018bcfe56801" + "0000012c") == file_system.read(
        "/0.timeindex"
    ).hex()
    assert TimestampOffset(-1, 1000) == index.lookup(1_699_999_999_999)
    assert TimestampOffset(1_700_000_000_000, 1005) == index.lookup(1_700_000_000_000)
    assert TimestampOffset(1_700_000_000_001, 1300) == index.lookup(1_800_000_000_000)


def test_transaction_index() -> None:
    file_system = FaultyFileSystem()
    index = TransactionIndex(file_system, "/0.txnindex", 0)
    assert not file_system.nodes, "nothing aborted, no file"
    aborted = AbortedTransaction(7, 100, 110, 105)
    index.append(aborted)
    expected = "0000" + "0000000000000007" + "0000000000000064" + "000000000000006e" + "0000000000000069"
    assert expected == file_system.read("/0.txnindex").hex()
    assert [aborted] == TransactionIndex(file_system, "/0.txnindex", 34).entries()


@pytest.mark.parametrize("content", [b"\x00", b"\x00\x01" + bytes(32), b"\xff\xff" + bytes(32)])
def test_a_harmed_transaction_index_is_recognised(content: bytes) -> None:
    file_system = FaultyFileSystem()
    file_system.nodes["/0.txnindex"] = Node(content)
    with pytest.raises(CorruptIndexError):
        TransactionIndex(file_system, "/0.txnindex", len(content)).entries()


def test_offset_checkpoint() -> None:
    text = b"0\n2\norders 0 12\nclicks.v2 11 9000000000\n"
    offsets = {TopicPartition("orders", 0): 12, TopicPartition("clicks.v2", 11): 9_000_000_000}
    lines = [offset_checkpoint_line(*item) for item in offsets.items()]
    assert text == format_offset_checkpoint_lines(lines)
    assert offsets == parse_offset_checkpoint(text)


def test_leader_epoch_checkpoint() -> None:
    assert b"0\n2\n0 0\n3 120\n" == format_leader_epochs([(0, 0), (3, 120)])
    assert [(0, 0), (3, 120)] == parse_leader_epochs(b"0\n2\n0 0\n3 120\n")


@pytest.mark.parametrize(
    "text",
    [b"0\n", b"-1\n0\n", b"x\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na b c\n", b"\xff\n0\n"],
)
def test_harmed_checkpoints_are_recognised(text: bytes) -> None:
    with pytest.raises(CorruptCheckpointError):
        parse_offset_checkpoint(text)


def test_an_empty_checkpoint_is_an_empty_list() -> None:
    """Apache Kafka leaves such files."""
    assert {} == parse_offset_checkpoint(b"")
    assert [] == parse_leader_epochs(b"")


def test_partition_metadata() -> None:
    topic_id = uuid_from_text("lkBVMS3-QZ2HyoKzGK9wlA")
    assert b"version: 0\ntopic_id: lkBVMS3-QZ2HyoKzGK9wlA" == format_partition_metadata(topic_id)
    assert topic_id == parse_partition_metadata(b"version: 0\ntopic_id: lkBVMS3-QZ2HyoKzGK9wlA\n")
    for text in (
        b"",
        b"version: x\ntopic_id: lkBVMS3-QZ2HyoKzGK9wlA",
        b"version: 0",
        b"version: 0\ntopic_id: x",
    ):
        with pytest.raises(CorruptCheckpointError):
            parse_partition_metadata(text)


def test_meta_properties() -> None:
    text = b"#\ncluster.id=vPeOCWypqUOSepEvx0cbog\nversion=0\nbroker.id=3\n"
    properties = MetaProperties("vPeOCWypqUOSepEvx0cbog", 3)
    assert text == format_meta_properties(properties)
    assert properties == parse_meta_properties(b"#Fri Nov 01 10:00:00 UTC 2024\n" + text)
    kraft = parse_meta_properties(b"node.id=1\nversion=1\ncluster.id=abc\ndirectory.id=d\n")
    assert MetaProperties("abc", 1, "d") == kraft
    for bad in (b"", b"version=-1\nbroker.id=1\n", b"version=0\n", b"version=0\nbroker.id=x\n"):
        with pytest.raises(CorruptCheckpointError):
            parse_meta_properties(bad)


def test_names() -> None:
    partition = TopicPartition("a-b.c_1", 12)
    unique = uuid.UUID(int=255).hex
    deleted = delete_directory_name(partition, unique)
    assert f"a-b.c_1-12.{unique}-delete" == deleted
    assert is_delete_directory(deleted)
    assert parse_partition_directory_name(deleted) is None
    assert partition == parse_partition_directory_name("a-b.c_1-12")
    assert not is_delete_directory("orders-delete")
    assert TopicPartition("my-delete", 0) == parse_partition_directory_name("my-delete-0")
    assert parse_partition_directory_name("nodash") is None
    assert (42, ".log", ".swap") == parse_offset_file_name("00000000000000000042.log.swap")
    assert (42, ".log", "") == parse_offset_file_name("00000000000000000042.log")
    assert parse_offset_file_name("leader-epoch-checkpoint") is None
