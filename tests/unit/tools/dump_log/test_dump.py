"""Dumping files of a log: the lines of Kafka's tool, and one clear line for each fault."""

import struct
from pathlib import Path

import pytest

from kalda.coordinator.group.offset_records import OffsetAndMetadata, offset_commit_record
from kalda.coordinator.transaction.transaction_log import encode_tombstone
from kalda.records.batch import set_base_offset_and_leader_epoch
from kalda.records.compression import Compression
from kalda.records.control import ControlRecordType, EndTransactionMarker, build_end_transaction_marker
from kalda.records.record import RecordBatchBuilder
from kalda.storage.checkpoints import format_leader_epochs
from kalda.storage.offset_index import ENTRY as OFFSET_ENTRY
from kalda.storage.producer_snapshot import format_snapshot
from kalda.storage.producer_state_entry import ProducerStateEntry
from kalda.storage.time_index import ENTRY as TIME_ENTRY
from kalda.storage.transaction_index import ENTRY as TRANSACTION_ENTRY
from kalda.tools.dump_log.decoders import decode_offsets, decode_transactions
from kalda.tools.dump_log.dump import DumpOptions, dump, files_of
from kalda.tools.dump_log.entries import DumpLine, Entry, Note, Problem, entry_json, entry_text
from kalda.tools.dump_log.segment import SegmentOptions

NAME = "00000000000000000000"
TIME = 1_700_000_000_000

DEEP = DumpOptions(SegmentOptions(is_deep=True, print_data_log=True))
SHALLOW = DumpOptions(SegmentOptions())


def batch(base_offset: int, *records: tuple[bytes | None, bytes | None], codec: Compression) -> bytes:
    builder = RecordBatchBuilder(compression=codec, base_offset=base_offset)
    for number, (key, value) in enumerate(records):
        builder.append(key, value, TIME + base_offset + number, [("h", b"1")] if key else [])
    return bytes(builder.build())


def segment(directory: Path, *batches: bytes) -> str:
    path = directory / f"{NAME}.log"
    path.write_bytes(b"".join(batches))
    return str(path)


def texts(lines: list[DumpLine]) -> list[str]:
    return [line.text if isinstance(line, Note) else text(line) for line in lines]


def text(line: Entry | Problem) -> str:
    return entry_text(line) if isinstance(line, Entry) else line.message


def test_batches_and_records_have_kafkas_lines(tmp_path: Path) -> None:
    """Scripts parse the output of kafka-dump-log."""
    data = batch(0, (b"k", b"v"), (None, None), codec=Compression.GZIP)
    path = segment(tmp_path, data)

    crc = struct.unpack_from(">I", data, 17)[0]
    assert [
        "Log starting offset: 0",
        (
            "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 "
            "producerEpoch: -1 partitionLeaderEpoch: -1 isTransactional: false isControl: false "
            f"deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: {TIME + 1} size: {len(data)} "
            f"magic: 2 compresscodec: gzip crc: {crc} isvalid: true"
        ),
        (
            f"| offset: 0 CreateTime: {TIME} keySize: 1 valueSize: 1 sequence: -1 headerKeys: [h] "
            "key: k payload: v"
        ),
        f"| offset: 1 CreateTime: {TIME + 1} keySize: -1 valueSize: -1 sequence: -1 headerKeys: []",
    ] == texts(list(dump(path, DEEP)))


def test_without_deep_iteration_only_batches_are_shown(tmp_path: Path) -> None:
    path = segment(tmp_path, batch(0, (b"k", b"v"), codec=Compression.NONE))

    kinds = [line.kind for line in dump(path, SHALLOW) if isinstance(line, Entry)]
    assert ["batch"] == kinds


def test_records_without_metadata_are_their_contents(tmp_path: Path) -> None:
    path = segment(tmp_path, batch(0, (b"k", b"v"), codec=Compression.NONE))
    options = DumpOptions(SegmentOptions(is_deep=True, print_data_log=True, skip_record_metadata=True))

    assert "| key: k payload: v" == texts(list(dump(path, options)))[-1]


def test_json_keeps_bytes_that_are_no_text(tmp_path: Path) -> None:
    """A program that reads the dump must get the record back."""
    path = segment(tmp_path, batch(0, (b"\xff", b"v"), codec=Compression.NONE))

    record = list(dump(path, DEEP))[-1]
    assert isinstance(record, Entry)
    fields = entry_json(record, path)
    assert ("record", "/w==", "v") == (fields["kind"], fields["keyBase64"], fields["payload"])
    assert entry_text(record).endswith("key: \ufffd payload: v")


def test_a_marker_shows_its_type(tmp_path: Path) -> None:
    marker = EndTransactionMarker(ControlRecordType.COMMIT, 3)
    data = build_end_transaction_marker(marker, producer_id=7, producer_epoch=1, timestamp=TIME)
    path = segment(tmp_path, bytes(data))

    assert texts(list(dump(path, DEEP)))[-1].endswith("endTxnMarker: COMMIT coordinatorEpoch: 3")


def test_a_wrong_crc_is_a_problem_at_its_position_and_the_dump_goes_on(tmp_path: Path) -> None:
    """One damaged batch must not hide what follows it."""
    first, second, third = (batch(at, (b"k", b"v"), codec=Compression.NONE) for at in range(3))
    damaged = second[:-1] + b"?"
    lines = list(dump(segment(tmp_path, first, damaged, third), DEEP))

    (problem,) = [line for line in lines if isinstance(line, Problem)]
    assert len(first) == problem.position
    assert "batch at offset 1 has CRC" in problem.message
    assert problem.is_fault
    valid = [line.fields["isvalid"] for line in lines if isinstance(line, Entry) and line.kind == "batch"]
    assert [True, False, True] == valid


def test_a_torn_tail_is_counted(tmp_path: Path) -> None:
    whole = batch(0, (b"k", b"v"), codec=Compression.NONE)
    lines = list(dump(segment(tmp_path, whole, whole[:30]), SHALLOW))

    assert isinstance(lines[-1], Problem)
    assert (len(whole), f"Found 30 invalid bytes at the end of {NAME}.log") == (
        lines[-1].position,
        lines[-1].message,
    )


def test_max_bytes_ends_the_dump_without_a_problem(tmp_path: Path) -> None:
    whole = batch(0, (b"k", b"v"), codec=Compression.NONE)
    options = DumpOptions(SegmentOptions(max_bytes=len(whole) + 5))

    assert 2 == len(list(dump(segment(tmp_path, whole, whole), options)))


def test_gaps_are_observed_but_no_fault(tmp_path: Path) -> None:
    """Compaction leaves gaps in a healthy log."""
    path = segment(
        tmp_path,
        batch(0, (b"k", b"v"), codec=Compression.NONE),
        batch(5, (b"k", b"v"), codec=Compression.NONE),
    )

    last = list(dump(path, DEEP))[-1]
    assert isinstance(last, Problem)
    assert ("Non-consecutive offsets: 0 is followed by 5", False) == (last.message, last.is_fault)


def test_damage_at_any_byte_gives_lines_and_no_traceback(tmp_path: Path) -> None:
    """The tool is for damaged files."""
    whole = batch(0, (b"k", b"v"), (b"l", b"w"), codec=Compression.LZ4)
    for at in range(len(whole)):
        damaged = bytearray(whole + whole)
        damaged[at] ^= 0x55
        lines = list(dump(segment(tmp_path, bytes(damaged)), DEEP))
        outside_the_crc = at < 8 or 12 <= at < 16
        assert outside_the_crc or any(isinstance(line, Problem) and line.is_fault for line in lines), at


def test_an_offset_index_is_checked_against_its_log(tmp_path: Path) -> None:
    first, second = (batch(at, (b"k", b"v"), codec=Compression.NONE) for at in (0, 1))
    segment(tmp_path, first, second)
    index = tmp_path / f"{NAME}.index"
    index.write_bytes(OFFSET_ENTRY.pack(1, len(first)) + OFFSET_ENTRY.pack(2, len(first)) + bytes(16))

    lines = list(dump(str(index), SHALLOW))
    assert [
        f"offset: 1 position: {len(first)}",
        f"Mismatch at position {len(first)} of the log: index offset: 2, log offset: 1",
        f"offset: 2 position: {len(first)}",
    ] == texts(lines)
    (problem,) = dump(str(index), DumpOptions(SegmentOptions(), verify_index_only=True))
    assert isinstance(problem, Problem)
    assert 8 == problem.position


def test_a_time_index_is_checked_against_its_log(tmp_path: Path) -> None:
    segment(tmp_path, *(batch(at, (b"k", b"v"), codec=Compression.NONE) for at in range(4)))
    index = tmp_path / f"{NAME}.timeindex"
    entries = [(TIME + 1, 1), (TIME + 7, 2), (TIME + 3, 3), (TIME + 9, 9)]
    index.write_bytes(b"".join(TIME_ENTRY.pack(*entry) for entry in entries))

    assert [
        f"timestamp: {TIME + 1} offset: 1",
        f"Timestamp mismatch: index timestamp: {TIME + 7}, log timestamp: {TIME + 2}",
        f"timestamp: {TIME + 7} offset: 2",
        f"Out of order: index timestamp: {TIME + 3}, previously indexed: {TIME + 7}",
        f"timestamp: {TIME + 3} offset: 3",
        "Indexed offset: 9 is not in the log",
        f"timestamp: {TIME + 9} offset: 9",
    ] == texts(list(dump(str(index), SHALLOW)))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_sanity_checks(tmp_path: Path, suffix: str) -> None:
    """The check decides at a broker's start whether the index is built again."""
    path = tmp_path / f"{NAME}{suffix}"
    options = DumpOptions(SegmentOptions(), index_sanity_check=True)
    entry = OFFSET_ENTRY.pack(1, 70) if suffix == ".index" else TIME_ENTRY.pack(TIME, 1)

    path.write_bytes(b"")
    assert [f"{path} is empty."] == texts(list(dump(str(path), options)))
    path.write_bytes(entry)
    assert [f"{path} passed sanity check."] == texts(list(dump(str(path), options)))
    path.write_bytes(entry + b"abc")
    (problem,) = dump(str(path), options)
    assert isinstance(problem, Problem)
    assert f"3 bytes behind the last entry: the size is no multiple of {len(entry)}" == problem.message


def test_an_index_without_its_log_says_that_it_is_not_checked(tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.index"
    path.write_bytes(OFFSET_ENTRY.pack(1, 70))

    lines = list(dump(str(path), SHALLOW))
    assert isinstance(lines[0], Problem)
    assert "its entries cannot be checked" in lines[0].message
    assert "offset: 1 position: 70" == texts(lines)[1]


def test_transaction_index_snapshot_and_checkpoint(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.txnindex").write_bytes(TRANSACTION_ENTRY.pack(0, 7, 1, 5, 6))
    producer = ProducerStateEntry(7, 1, 2, TIME)
    producer.add_batch(1, 9, 30, 3, TIME)
    (tmp_path / f"{NAME}.snapshot").write_bytes(format_snapshot([producer]))
    (tmp_path / "leader-epoch-checkpoint").write_bytes(format_leader_epochs([(0, 0), (3, 12)]))
    (tmp_path / "unrelated.txt").write_text("x")

    lines = [line for path in files_of(str(tmp_path)) for line in dump(path, SHALLOW)]
    assert [
        (
            "producerId: 7 producerEpoch: 1 coordinatorEpoch: 2 currentTxnFirstOffset: OptionalLong.empty "
            f"lastTimestamp: {TIME} firstSequence: 6 lastSequence: 9 lastOffset: 30 offsetDelta: 3 "
            f"timestamp: {TIME}"
        ),
        "version: 0 producerId: 7 firstOffset: 1 lastOffset: 5 lastStableOffset: 6",
        "leaderEpoch: 0 startOffset: 0",
        "leaderEpoch: 3 startOffset: 12",
    ] == texts(lines)


@pytest.mark.parametrize("name", [f"{NAME}.snapshot", f"{NAME}.txnindex", "leader-epoch-checkpoint"])
def test_junk_in_a_small_file_is_one_problem(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"junk")

    (problem,) = dump(str(path), SHALLOW)
    assert isinstance(problem, Problem)
    assert problem.is_fault


def test_a_file_that_is_no_part_of_a_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("x")

    (problem,) = dump(str(path), SHALLOW)
    assert isinstance(problem, Problem)
    assert problem.message.startswith("is of no kind that can be dumped; known are .log")


def test_a_missing_file_is_one_problem(tmp_path: Path) -> None:
    (problem,) = dump(str(tmp_path / f"{NAME}.log"), SHALLOW)

    assert isinstance(problem, Problem)
    assert "cannot be read: No such file or directory" == problem.message


def test_offsets_are_decoded(tmp_path: Path) -> None:
    committed = offset_commit_record("g", "t", 3, OffsetAndMetadata(42, 1, "m", TIME))
    builder = RecordBatchBuilder()
    builder.append(committed.key, committed.value, TIME)
    builder.append(committed.key, None, TIME)
    builder.append(b"\x00\x63", b"x", TIME)
    builder.append(b"\x00", b"x", TIME)
    options = DumpOptions(
        SegmentOptions(is_deep=True, print_data_log=True, skip_record_metadata=True, decoder=decode_offsets)
    )

    key = 'key: {"type":"1","data":{"group":"g","topic":"t","partition":3}}'
    assert [
        (
            f'| {key} payload: {{"version":"3","data":{{"offset":42,"leaderEpoch":1,"metadata":"m",'
            f'"commitTimestamp":{TIME}}}}}'
        ),
        f"| {key} payload: <DELETE>",
        "| key: Unknown record type 99 at offset 2, skipping.",
        (
            "| key: Error at offset 3, skipping. a record of an internal topic has 1 bytes, "
            "a version alone has 2"
        ),
    ] == texts(list(dump(segment(tmp_path, bytes(builder.build())), options)))[2:]


def test_transaction_tombstones_are_decoded(tmp_path: Path) -> None:
    record = encode_tombstone("x")
    builder = RecordBatchBuilder()
    builder.append(record.key, record.value, TIME)
    data = builder.build()
    set_base_offset_and_leader_epoch(data, 0, 4, 0)
    options = DumpOptions(
        SegmentOptions(
            is_deep=True, print_data_log=True, skip_record_metadata=True, decoder=decode_transactions
        )
    )

    expected = '| key: {"type":"0","data":{"transactionalId":"x"}} payload: <DELETE>'
    assert expected == texts(list(dump(segment(tmp_path, bytes(data)), options)))[-1]
