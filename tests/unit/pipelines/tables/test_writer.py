"""The files of one task: their names, their size, and what a failure leaves."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kalda.pipelines.tables import writer as writer_module
from kalda.pipelines.tables.model import DataFile, TaskId
from kalda.pipelines.tables.partitions import parse_fields
from kalda.pipelines.tables.storage import TableStorage
from kalda.pipelines.tables.writer import (
    ParquetTaskWriter,
    clean_staging,
    published_name,
    query_token,
    staging_directory,
)

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
TASK = TaskId("query", 3, 1)
TOKEN = query_token("query")


def rows(first: int, count: int, key: str = "a") -> pa.RecordBatch:
    ids = range(first, first + count)
    micros = [number * 1_000_000 for number in ids]
    return pa.RecordBatch.from_pydict({"id": list(ids), "k": [key] * count, "ts": micros}, SCHEMA)


def writer_of(root: Path, **options: object) -> ParquetTaskWriter:
    return ParquetTaskWriter(TableStorage(f"file://{root}/t"), SCHEMA, **options)  # type: ignore[arg-type]  # those of the class


def files_below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root / "t")) for path in (root / "t").rglob("*") if path.is_file())


def test_names_follow_from_query_batch_and_task(tmp_path: Path) -> None:
    """Two attempts write files of their own, which have one name in the table."""
    attempts = [writer_of(tmp_path, staged=True).write([rows(0, 3)], TASK) for _ in range(2)]
    (one,), (other,) = attempts
    assert one.path != other.path
    assert staging_directory("query", 3) == one.path.rpartition("/")[0]
    assert {f"kalda-{TOKEN}-000000000003-00001-00000.parquet"} == {
        published_name(one.path),
        published_name(other.path),
    }
    (plain,) = writer_of(tmp_path, directory="data").write([rows(0, 3)], TASK)
    assert plain.path.startswith(f"data/kalda-{TOKEN}-000000000003-00001-")


def test_a_file_says_what_it_holds(tmp_path: Path) -> None:
    (file,) = writer_of(tmp_path, event_time="ts").write([rows(0, 3), rows(3, 0), rows(3, 4)], TASK)
    assert (7, 0, 6_000) == (file.rows, file.event_time_min, file.event_time_max)
    assert (tmp_path / "t" / file.path).stat().st_size == file.size_bytes
    assert (0, 6, 0) == (file.stats["id"].min, file.stats["id"].max, file.stats["id"].nulls)
    assert [] == writer_of(tmp_path).write([rows(0, 0)], TASK)
    assert [] == writer_of(tmp_path).write([], TASK)


def test_a_full_file_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "BUFFER_BYTES_MAX", 1)
    files = writer_of(tmp_path, file_bytes_target=1).write([rows(0, 5), rows(5, 5)], TASK)
    assert [5, 5] == [file.rows for file in files]
    assert ["00000", "00001"] == [file.path.removesuffix(".parquet")[-5:] for file in files]
    (whole,) = writer_of(tmp_path, file_bytes_target=1 << 30).write([rows(0, 5), rows(5, 5)], TASK)
    assert 2 == pq.read_metadata(tmp_path / "t" / whole.path).num_row_groups


def test_few_files_are_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition whose file was closed for others gets another one."""
    monkeypatch.setattr(writer_module, "OPEN_FILES_MAX", 2)
    batches = [rows(number, 1, key) for number, key in enumerate("abcab")]
    files = writer_of(tmp_path, fields=parse_fields(("k",))).write(batches, TASK)
    assert sorted("aabbc") == sorted(str(file.partition[0][1]) for file in files)
    assert {0, 1, 2, 3, 4} == {row["id"] for file in files for row in read(tmp_path, file)}


def read(root: Path, file: DataFile) -> list[dict[str, object]]:
    found: list[dict[str, object]] = pq.read_table(root / "t" / file.path, partitioning=None).to_pylist()
    return found


def test_columns_of_partitions_are_left_out_or_made(tmp_path: Path) -> None:
    without = pa.schema([SCHEMA.field("id"), SCHEMA.field("ts")])
    (file,) = writer_of(tmp_path, fields=parse_fields(("k",)), file_schema=without).write([rows(0, 2)], TASK)
    assert ["id", "ts"] == list(read(tmp_path, file)[0])
    made = SCHEMA.append(pa.field("ts_year", pa.int32()))
    (file,) = writer_of(tmp_path, fields=parse_fields(("year(ts)",)), file_schema=made).write(
        [rows(0, 2)], TASK
    )
    assert [1970, 1970] == [row["ts_year"] for row in read(tmp_path, file)]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_failure_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Also of the files that were closed before, and where the disk is full."""
    opened = TableStorage.open_output
    calls = 0

    def failing(storage: TableStorage, path: str) -> pa.NativeFile:
        nonlocal calls
        calls += 1
        if calls == number:
            raise OSError(28, "No space left on device")
        return opened(storage, path)

    monkeypatch.setattr(TableStorage, "open_output", failing)
    monkeypatch.setattr(writer_module, "OPEN_FILES_MAX", 1)
    batches = [rows(number, 1, key) for number, key in enumerate("abc")]
    with pytest.raises(OSError, match=f"No space left on device: 'file://{tmp_path}/t'"):
        writer_of(tmp_path, fields=parse_fields(("k",))).write(batches, TASK)
    assert [] == files_below(tmp_path)


def test_staging_is_cleaned_up_to_a_batch_of_a_query(tmp_path: Path) -> None:
    """Another query, and the batch after it, have tasks that still write."""
    writer = writer_of(tmp_path, staged=True)
    for query, batch_id in (("query", 1), ("query", 2), ("query", 3), ("other", 1)):
        writer.write([rows(0, 1)], TaskId(query, batch_id, 0))
    clean_staging(writer.storage, "query", 2)
    left = {path.rpartition("/")[0] for path in files_below(tmp_path)}
    assert {staging_directory("query", 3), staging_directory("other", 1)} == left
    clean_staging(writer.storage, "none", 2)
