"""`kalda legacy DumpLogSegments` on files of each format; Java's tools print the same (`make compat`)."""

import struct
from pathlib import Path

import pytest

from kalda.records.batch import TimestampType, read_header
from kalda.records.compression import Compression
from kalda.records.format_conversion import new_builder
from tests.integration.tools.commands import Commands

NOBODY = Commands("127.0.0.1:1")


def segment(directory: Path, magic: int, codec: Compression) -> tuple[Path, int]:
    """Write two messages; return the file and the checksum of its first entry."""
    builder = new_builder(magic, base_offset=5, compression=codec, timestamp_type=TimestampType.CREATE_TIME)
    builder.append(b"key", b"one", 1_000)
    builder.append(None, None, 2_000)
    data = bytes(builder.build())
    path = directory / "00000000000000000005.log"
    path.write_bytes(data)
    return path, read_header(data).crc


def lines(*arguments: object) -> list[str]:
    return NOBODY("legacy", "DumpLogSegments", "--files", *map(str, arguments)).stdout.splitlines()


def test_messages_of_format_0_have_the_lines_of_0_8_2(tmp_path: Path) -> None:
    path, crc = segment(tmp_path, 0, Compression.NONE)

    found = lines(path, "--print-data-log")

    assert [f"Dumping {path}", "Starting offset: 5"] == found[:2]
    assert (
        "offset: 5 position: 0 isvalid: true payloadsize: 3 magic: 0 "
        f"compresscodec: NoCompressionCodec crc: {crc} keysize: 3 key: key payload: one"
    ) == found[2]
    assert found[3].startswith("offset: 6 position: 32 isvalid: true payloadsize: -1 magic: 0 ")
    assert found[3].endswith(" payload: null")


@pytest.mark.parametrize(("magic", "shown"), [(1, "offset: 6"), (2, "offset: 5")])
def test_wrappers_are_opened_on_request(tmp_path: Path, magic: int, shown: str) -> None:
    path, crc = segment(tmp_path, magic, Compression.GZIP)

    (wrapper,) = lines(path)[2:]
    opened = lines(path, "--deep-iteration")[2:]

    assert wrapper.startswith(f"{shown} position: 0 CreateTime: 2000 isvalid: true ")
    assert wrapper.endswith(f"magic: {magic} compresscodec: GZIP crc: {crc}")
    assert ["offset: 5 position: 0 CreateTime: 1000", "offset: 6 position: 0 CreateTime: 2000"] == [
        each.partition(" isvalid")[0] for each in opened
    ]


def test_payloads_of_batches_are_printed_without_more_options(tmp_path: Path) -> None:
    """Format 2 has records in batches only; Java's tool opens them since it knows that format."""
    path, _ = segment(tmp_path, 2, Compression.NONE)

    found = lines(path, "--print-data-log")[2:]

    assert ["keysize: 3 key: key payload: one", "payload: null"] == [
        each.partition(f"crc: {read_header(path.read_bytes()).crc} ")[2] for each in found
    ]


def test_damage_and_a_partial_message_are_shown(tmp_path: Path) -> None:
    path, _ = segment(tmp_path, 1, Compression.NONE)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data + b"\0" * 7)

    found = lines(path)

    assert [": true", ": false"] == [each.partition("isvalid")[2].partition(" p")[0] for each in found[2:4]]
    assert f"Found 7 invalid bytes at the end of {path.name}" == found[4]


def test_an_index_that_disagrees_with_its_log_is_a_failure(tmp_path: Path) -> None:
    path, _ = segment(tmp_path, 1, Compression.NONE)
    index = path.with_suffix(".index")
    index.write_bytes(struct.pack(">iiii", 1, 40, 9, 0) + bytes(80))

    done = NOBODY.run("legacy", "DumpLogSegments", "--files", index)

    assert [
        f"Dumping {index}",
        "offset: 6 position: 40",
        "offset: 14 position: 0",
    ] == done.stdout.splitlines()
    assert 1 == done.code
    assert f"Mismatches in :{index}\n" in done.stderr
    assert "  Index offset: 14, log offset: 5" in done.stderr


def test_other_files_are_passed_over_and_missing_ones_named(tmp_path: Path) -> None:
    assert ["Ignoring unknown file x.txt"] == lines("x.txt")
    done = NOBODY.run("legacy", "DumpLogSegments", "--files", tmp_path / "1.log")
    assert (2, True) == (done.code, "1.log: No such file" in done.stderr)


def test_payloads_that_are_no_text_are_shown_with_replacements(tmp_path: Path) -> None:
    """As Java shows them."""
    builder = new_builder(
        1, base_offset=0, compression=Compression.NONE, timestamp_type=TimestampType.CREATE_TIME
    )
    builder.append(None, b"\xffone", 1)
    path = tmp_path / "0.log"
    path.write_bytes(bytes(builder.build()))

    assert lines(path, "--print-data-log")[2].endswith(" payload: \ufffdone")


def test_no_file_is_a_mistake() -> None:
    done = NOBODY.run("legacy", "DumpLogSegments", "--files", " , ")
    assert (2, True) == (done.code, "names no file" in done.stderr)
