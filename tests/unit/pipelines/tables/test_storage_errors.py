"""Errors of a full or broken disk say where it is."""

import errno
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kalda.pipelines.spec.model import TableFormat
from kalda.pipelines.tables import TaskId, open_table
from kalda.pipelines.tables.storage import TableStorage, errors_that_name
from tests.unit.pipelines.tables.table_cases import FORMATS, orders, spec_of


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (
            OSError(errno.ENOSPC, "Error writing bytes to file"),
            "[Errno 28] No space left on device: 's3://lake'",
        ),
        (
            OSError("Generic error\n  \x1b[31m↳\x1b[0m No space"),
            "Generic error No space: 's3://lake'",
        ),
        (FileNotFoundError(errno.ENOENT, "x", "/other"), "[Errno 2] x: '/other'"),
    ],
)
def test_the_place_is_named(given: OSError, shown: str) -> None:
    with pytest.raises(type(given), match=re.escape(shown)) as raised, errors_that_name("s3://lake"):
        raise given
    assert shown == str(raised.value)
    assert type(given) is type(raised.value)


def no_output(storage: TableStorage, path: str) -> pa.NativeFile:
    """Fail as pyarrow does on a full disk."""
    raise OSError(errno.ENOSPC, "Error writing bytes to file")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_task_that_cannot_write_names_the_table_and_leaves_nothing(
    tmp_path: Path, kind: TableFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver shows the task's error, which is all that an operator has; its rows have their own."""
    spec = spec_of(tmp_path, kind)
    table = open_table(spec)
    table.prepare_schema(orders(0, 1).schema)
    writer = table.writer(orders(0, 1).schema)

    def rows() -> Iterator[pa.RecordBatch]:
        yield orders(0, 10)
        raise ConnectionError("no broker")

    with pytest.raises(ConnectionError, match=r"^no broker$"):
        writer.write(rows(), TaskId("q", 0, 0))
    monkeypatch.setattr(TableStorage, "open_output", no_output)
    with pytest.raises(OSError, match=rf"No space left on device: '{spec.path}'"):
        writer.write([orders(0, 10)], TaskId("q", 0, 0))
    assert [] == [each for each in tmp_path.rglob("*.parquet*") if "_delta_log" not in str(each)]
