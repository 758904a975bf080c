"""Computes the rows that one version of a Delta table inserted and deleted, from the actions of its commit.

A commit with change files (`delta.enableChangeDataFeed`) says so itself. Any other is given by the rows of
the files that it removed and added, without those that are on both sides. Actions without `dataChange`, which
compactions have, change no row. Do not break: a deletion precedes an insertion of the same key, so that a
topic ends with the right value.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kalda.pipelines.tables.errors import TableError
from kalda.pipelines.tables.model import ChangeSet
from kalda.pipelines.tables.partitions import value_of_text
from kalda.pipelines.tables.reading import BATCH_ROWS, read_file, with_constants
from kalda.pipelines.tables.row_difference import changed_rows
from kalda.pipelines.tables.storage import TableStorage

CHANGE_TYPE: Final = "_change_type"


def version_changes(
    storage: TableStorage, version: int, schema: pa.Schema, table: str
) -> Iterator[ChangeSet]:
    """Return the changes of a version with the columns of `schema`.

    Raises:
        TableError: The commit is no longer in the log, or its files have deletion vectors.
    """
    path = f"_delta_log/{version:020d}.json"
    data = storage.read(path)
    if data is None:
        raise TableError(
            f"The commit {path} of the table {table} is no longer in its log; "
            "read the whole table once and go on from its version"
        )
    actions = [json.loads(line) for line in data.decode().splitlines() if line.strip()]
    changes = [action["cdc"] for action in actions if "cdc" in action]
    added = [action["add"] for action in actions if action.get("add", {}).get("dataChange")]
    removed = [action["remove"] for action in actions if action.get("remove", {}).get("dataChange")]
    for change in changes:
        yield from _change_file(storage, change, version, schema)
    if changes:
        return
    for file in (*removed, *added):
        if file.get("deletionVector"):
            raise TableError(
                f"Version {version} of the table {table} has deletion vectors; set "
                "delta.enableChangeDataFeed=true on it, or delta.enableDeletionVectors=false"
            )
    yield from changed_rows(
        version, partial(_rows, storage, removed, schema), partial(_rows, storage, added, schema)
    )


def _rows(
    storage: TableStorage, files: Sequence[Mapping[str, Any]], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for file in files:
        yield from read_file(storage, unquote(file["path"]), schema, _constants(file, schema))


def _change_file(
    storage: TableStorage, change: Mapping[str, Any], version: int, schema: pa.Schema
) -> Iterator[ChangeSet]:
    constants = _constants(change, schema)
    with storage.open_input(unquote(change["path"])) as source, pq.ParquetFile(source) as parquet:
        for batch in map(_without_views, parquet.iter_batches(batch_size=BATCH_ROWS)):
            kinds = batch.column(batch.schema.get_field_index(CHANGE_TYPE))
            rows = with_constants(batch, schema, constants)
            # A deletion precedes an insertion: delete, insert, update_postimage, update_preimage.
            for kind in sorted(pc.unique(kinds).to_pylist()):
                yield ChangeSet(version, kind, rows.filter(pc.equal(kinds, kind)))


def _without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return texts and bytes in types that can be filtered; the library's change files name view types."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    fields = [field.with_type(plain.get(field.type, field.type)) for field in batch.schema]
    return batch.cast(pa.schema(fields))


def _constants(file: Mapping[str, Any], schema: pa.Schema) -> dict[str, object]:
    values: Mapping[str, str | None] = file.get("partitionValues") or {}
    return {name: value_of_text(text, schema.field(name).type) for name, text in values.items()}
