"""Delta and Iceberg tables that another engine made, with features and constraints of its own."""

import base64
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import CommitFailedError
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType

from kalda.pipelines.spec.model import Evolve, TableFormat, WriteMode
from kalda.pipelines.tables import (
    CompactPolicy,
    Table,
    TableError,
    TableSpecError,
    TaskId,
    delta_table,
    iceberg_table,
    open_table,
)
from kalda.pipelines.tables.compaction import Candidate, plan_bins
from kalda.pipelines.tables.iceberg_files import table_faults
from kalda.pipelines.tables.iceberg_table import IcebergTable
from kalda.pipelines.tables.upsert import DELETE, HIDDEN, OFFSET, PARTITION
from tests.unit.pipelines.tables.table_cases import QUERY, account, append, rows_of, spec_of

BASE_85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])


def delta_log(
    root: Path,
    *,
    protocol: Mapping[str, object],
    fields: Sequence[Mapping[str, object]],
    configuration: Mapping[str, str] | None = None,
    partition_by: Sequence[str] = (),
) -> str:
    """Write the log of an empty table as Spark writes it; return the table's path."""
    log = root / "lake/orders/_delta_log"
    log.mkdir(parents=True)
    metadata = {
        "id": "5f8a4e1c-0b0e-4c6e-9a55-0f3d9b7f2a11",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": list(partition_by),
        "configuration": configuration or {},
        "createdTime": 0,
    }
    actions = ({"protocol": protocol}, {"metaData": metadata})
    (log / f"{0:020d}.json").write_text("".join(json.dumps(each) + "\n" for each in actions))
    return str(log.parent)


def field(
    name: str,
    kind: object = "long",
    metadata: Mapping[str, object] | None = None,
    *,
    nullable: bool = True,
) -> dict[str, object]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata or {}}


def mapped(name: str, number: int, kind: object = "long") -> dict[str, object]:
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return field(name, kind, metadata)


def foreign_rows(path: str, where: str = "true") -> list[dict[str, object]]:
    """Return the rows that a reader finds who knows nothing but Delta's protocol."""
    found = (
        QueryBuilder().register("t", DeltaTable(path)).execute(f"select * from t where {where} order by id")
    )
    rows: list[dict[str, object]] = pa.table(found).to_pylist()
    return rows


def names_in_files(path: str) -> set[str]:
    return {name for each in Path(path).rglob("*.parquet") for name in pq.read_schema(each).names}


def put(
    table: Table, rows: Sequence[Mapping[str, object]], schema: pa.Schema, batch_id: int = 0
) -> list[str]:
    """Write what fits of a batch; return why the others do not."""
    batch = pa.RecordBatch.from_pylist([*rows], schema)
    table.prepare_schema(schema, is_strict=False)
    fitted = table.fit().fit(batch)
    append(table, batch_id, fitted.rows)
    return [each.message for each in fitted.misfits]


def deletion_vector(row: int) -> dict[str, object]:
    """Return a deletion vector with one row, inside the log: a Roaring bitmap in the text form Z85."""
    bitmap = struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, row)
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    text = base64.b85encode(data + bytes(-len(data) % 4)).decode()
    return {
        "storageType": "i",
        "pathOrInlineDv": text.translate(str.maketrans(BASE_85, Z85)),
        "sizeInBytes": len(data),
        "cardinality": 1,
    }


def delete_by_vector(path: str, row: int) -> None:
    """Delete a row of the file that came last, as Spark does."""
    log = Path(path) / "_delta_log"
    version = DeltaTable(path).version()
    actions = map(json.loads, (log / f"{version:020d}.json").read_text().splitlines())
    (add,) = [action["add"] for action in actions if "add" in action]
    remove = {"path": add["path"], "deletionTimestamp": 0, "dataChange": True}
    with_vector = {**add, "deletionVector": deletion_vector(row)}
    lines = (json.dumps({"remove": remove}), json.dumps({"add": with_vector}))
    (log / f"{version + 1:020d}.json").write_text("\n".join(lines) + "\n")


def with_vectors(root: Path) -> str:
    """Return a table that may have deletion vectors, with three files of four rows."""
    features = ["deletionVectors"]
    protocol: dict[str, object] = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol |= {"readerFeatures": features, "writerFeatures": features}
    path = delta_log(
        root,
        protocol=protocol,
        fields=[field("id"), field("v", "string")],
        configuration={"delta.enableDeletionVectors": "true"},
    )
    for batch_id in range(3):
        rows = [{"id": batch_id * 10 + number} for number in range(4)]
        put(open_table(spec_of(root, TableFormat.DELTA)), rows, COLUMNS, batch_id)
    return path


def test_a_compaction_leaves_files_with_deletion_vectors_alone(tmp_path: Path) -> None:
    path = with_vectors(tmp_path)
    delete_by_vector(path, 2)
    expected = [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 23]
    assert expected == [row["id"] for row in foreign_rows(path)]

    result = open_table(spec_of(tmp_path, TableFormat.DELTA)).compact(CompactPolicy(newest_kept_s=0))

    assert (2, 1) == (result.files_removed, result.files_added)
    assert expected == [row["id"] for row in foreign_rows(path)]


@pytest.mark.parametrize("other", ["compaction", "deletion"])
def test_a_compaction_gives_way_to_another_writer_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """deltalake's own commits both of two compactions, and each row is there twice."""
    path, spec = with_vectors(tmp_path), spec_of(tmp_path, TableFormat.DELTA)
    policy = CompactPolicy(newest_kept_s=0)

    def other_first(files: Iterable[Candidate], chosen: CompactPolicy, now_ms: int) -> object:
        monkeypatch.undo()
        if other == "compaction":
            assert 3 == open_table(spec).compact(policy).files_removed
        else:
            delete_by_vector(path, 2)
        return plan_bins(files, chosen, now_ms)

    monkeypatch.setattr(delta_table, "plan_bins", other_first)
    assert 0 == open_table(spec).compact(policy).files_removed
    left = [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, *([22] if other == "compaction" else []), 23]
    assert left == [row["id"] for row in foreign_rows(path)]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_with_names_of_their_own_in_files(tmp_path: Path, mode: str) -> None:
    """Readers that follow the protocol saw null in each column."""
    inner = {"type": "struct", "fields": [mapped("x", 4)]}
    path = delta_log(
        tmp_path,
        protocol={"minReaderVersion": 2, "minWriterVersion": 5},
        fields=[mapped("id", 1), mapped("v", 2, "string"), mapped("s", 3, inner), mapped("day", 5, "string")],
        configuration={"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "5"},
        partition_by=["day"],
    )
    spec = spec_of(tmp_path, TableFormat.DELTA, partition_by=("day",))
    schema = pa.schema([*COLUMNS, ("s", pa.struct([("x", pa.int64())])), ("day", pa.string())])
    rows = [
        {"id": number, "v": f"v{number}", "s": {"x": number}, "day": "mon" if number % 2 else None}
        for number in range(4)
    ]
    for batch_id in (0, 1):
        assert [] == put(open_table(spec), rows[batch_id * 2 : batch_id * 2 + 2], schema, batch_id)
    assert rows == rows_of(open_table(spec))
    assert rows == foreign_rows(path)
    assert {"col-1", "col-2", "col-3"} == names_in_files(path)
    changes = [row for change in open_table(spec).read_changes(0) for row in change.rows.to_pylist()]
    assert rows == sorted(changes, key=lambda row: row["id"])

    assert 4 == open_table(spec).compact(CompactPolicy(newest_kept_s=0)).files_removed
    assert rows == rows_of(open_table(spec))
    assert rows[2:] == foreign_rows(path, "id > 1")

    # deltalake adds no column to such a table: the row is named, and the table stays as it is.
    wider = pa.schema([*schema, ("new", pa.int64())])
    reasons = put(open_table(spec), [{"id": 9, "new": 1}, {"id": 10}], wider, 2)
    assert 1 == len(reasons)
    assert "column new=1: the table lake.orders has no such column" in reasons[0]
    assert [0, 1, 2, 3, 10] == [row["id"] for row in rows_of(open_table(spec))]


def test_rows_replace_each_other_where_columns_have_names_of_their_own(tmp_path: Path) -> None:
    path = delta_log(
        tmp_path,
        protocol={"minReaderVersion": 2, "minWriterVersion": 5},
        fields=[mapped("id", 1), mapped("v", 2, "string")],
        configuration={"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"},
    )
    spec = spec_of(tmp_path, TableFormat.DELTA, mode=WriteMode.UPSERT, keys=("id",))
    schema = pa.schema([*COLUMNS, *HIDDEN])
    for batch_id, text in enumerate(("a", "b")):
        table = open_table(spec)
        table.prepare_schema(schema)
        batch = pa.RecordBatch.from_pylist(
            [{"id": 1, "v": text, "__kalda_partition": 0, "__kalda_offset": 0}], schema
        )
        files = table.upsert_writer(schema).write([batch], TaskId(QUERY, batch_id, 0))
        table.upsert(account(batch_id, 1), files)
    assert [{"id": 1, "v": "b"}] == foreign_rows(path)
    assert {"col-1", "col-2"} == names_in_files(path)


def test_rows_that_a_deletion_vector_deletes_stay_deleted(tmp_path: Path) -> None:
    """An append and an upsert leave them alone; a row of a deleted key is inserted."""
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    path = delta_log(
        tmp_path,
        protocol={"minReaderVersion": 3, "minWriterVersion": 7, **features},
        fields=[field("id"), field("v", "string")],
        configuration={"delta.enableDeletionVectors": "true"},
    )
    file = Path(path) / "a.parquet"
    pq.write_table(pa.table({"id": list(range(8)), "v": ["old"] * 8}, COLUMNS), file)
    # A roaring bitmap of the rows 2 and 5.
    vector = {
        "storageType": "i",
        "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000315c8Xg0SSx7",
        "sizeInBytes": 36,
        "cardinality": 2,
    }
    add = {
        "path": file.name,
        "partitionValues": {},
        "size": file.stat().st_size,
        "modificationTime": 0,
        "dataChange": True,
        "stats": json.dumps({"numRecords": 8, "tightBounds": False}),
        "deletionVector": vector,
    }
    (Path(path) / f"_delta_log/{1:020d}.json").write_text(json.dumps({"add": add}) + "\n")
    table = open_table(spec_of(tmp_path, TableFormat.DELTA))
    old = [{"id": each, "v": "old"} for each in (0, 1, 3, 4, 6, 7)]
    assert old == rows_of(table) == foreign_rows(path)

    append(table, 0, pa.RecordBatch.from_pylist([{"id": 9, "v": "new"}], COLUMNS))
    assert [*old, {"id": 9, "v": "new"}] == rows_of(table) == foreign_rows(path)

    upserts = open_table(spec_of(tmp_path, TableFormat.DELTA, mode=WriteMode.UPSERT, keys=("id",)))
    schema = pa.schema([*COLUMNS, *HIDDEN])
    rows = [{"id": each, "v": "new", PARTITION: 0, OFFSET: each} for each in (1, 2)]
    rows.append({"id": 9, PARTITION: 0, OFFSET: 9, DELETE: True})
    upserts.prepare_schema(schema)
    batch = pa.RecordBatch.from_pylist(rows, schema)
    files = upserts.upsert_writer(schema).write([batch], TaskId(QUERY, 1, 0))
    upserts.upsert(account(1, 3), files)
    changed = {each["id"]: each["v"] for each in foreign_rows(path)}
    assert {0: "old", 1: "new", 2: "new", 3: "old", 4: "old", 6: "old", 7: "old"} == changed


def test_constraints_of_a_delta_table(tmp_path: Path) -> None:
    invariant = json.dumps({"expression": {"expression": "v <> 'x'"}})
    delta_log(
        tmp_path,
        protocol={"minReaderVersion": 1, "minWriterVersion": 3},
        fields=[field("id", nullable=False), field("v", "string", {"delta.invariants": invariant})],
        configuration={"delta.constraints.positive": "id > 0"},
    )
    spec = spec_of(tmp_path, TableFormat.DELTA)
    rows: list[dict[str, object]] = [
        {"id": 1, "v": "a"},
        {"id": -1, "v": "a"},
        {"id": None, "v": "a"},
        {"id": 2, "v": "x"},
    ]
    reasons = put(open_table(spec), rows, COLUMNS)

    assert [{"id": 1, "v": "a"}] == rows_of(open_table(spec))
    assert [
        "the constraint positive of the table lake.orders, id > 0, is not true for {'id': -1, 'v': 'a'}",
        "column id=None: the column is NOT NULL",
    ] == reasons[:2]
    assert (
        "constraint of the column v of the table lake.orders, v <> 'x', is not true for {'id'" in reasons[2]
    )


def test_widening_keeps_what_the_table_asks_for(tmp_path: Path) -> None:
    """The whole table is written again, under the constraints that it had."""
    path = delta_log(
        tmp_path,
        protocol={"minReaderVersion": 1, "minWriterVersion": 4},
        fields=[field("id", nullable=False), field("n", "integer")],
        configuration={"delta.constraints.positive": "id > 0", "delta.enableChangeDataFeed": "true"},
    )
    spec = spec_of(tmp_path, TableFormat.DELTA, evolve=Evolve.WIDEN)
    assert [] == put(
        open_table(spec), [{"id": 1, "n": 1}], pa.schema([("id", pa.int64()), ("n", pa.int32())])
    )
    wide = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    assert 1 == len(put(open_table(spec), [{"id": 2, "n": 1 << 40}, {"id": None}], wide, 1))

    assert [{"id": 1, "n": 1}, {"id": 2, "n": 1 << 40}] == rows_of(open_table(spec))
    schema = pa.schema(DeltaTable(path).schema())
    assert (False, pa.int64()) == (schema.field("id").nullable, schema.field("n").type)
    assert {"delta.constraints.positive": "id > 0", "delta.enableChangeDataFeed": "true"} == (
        DeltaTable(path).metadata().configuration
    )


@pytest.mark.parametrize(
    ("protocol", "fields", "configuration", "upsert", "reason"),
    [
        (
            (1, 4),
            [field("id", "long", {"delta.generationExpression": "1"})],
            {},
            False,
            "its column id is generated",
        ),
        ((1, 6), [field("id")], {}, False, "its writer version 6 asks for identity columns"),
        (
            (1, 2),
            [field("id")],
            {"delta.appendOnly": "true"},
            True,
            "delta.appendOnly=true forbids the mode upsert",
        ),
        ((3, 7, "rowTracking", "domainMetadata"), [field("id")], {}, False, "its feature rowTracking is not"),
        ((3, 7, "clustering"), [field("id")], {}, False, "its feature clustering is not implemented"),
        ((3, 7, "inCommitTimestamp"), [field("id")], {}, False, "its feature inCommitTimestamp is not"),
        ((3, 7, "newThing"), [field("id")], {}, False, "its feature newThing is not implemented"),
        (
            (1, 3),
            [field("id")],
            {"delta.constraints.c": "f(id)"},
            False,
            r"its constraint c \(f\(id\)\) cannot be",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_is_not_implemented_is_refused_by_name(
    tmp_path: Path,
    protocol: tuple[object, ...],
    fields: Sequence[Mapping[str, object]],
    configuration: Mapping[str, str],
    upsert: bool,
    reason: str,
) -> None:
    versions = {"minReaderVersion": protocol[0], "minWriterVersion": protocol[1]}
    features = {"readerFeatures": [], "writerFeatures": protocol[2:]} if len(protocol) > 2 else {}
    delta_log(tmp_path, protocol=versions | features, fields=fields, configuration=configuration)
    options = {"mode": WriteMode.UPSERT, "keys": ("id",)} if upsert else {}
    table = open_table(spec_of(tmp_path, TableFormat.DELTA, **options))
    assert table.faults()
    with pytest.raises(TableSpecError, match=f"The table lake.orders cannot be written: .*{reason}"):
        table.prepare_schema(pa.schema([("id", pa.int64())]))


def test_a_refused_commit_is_no_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was tried a hundred times, and then other writers were blamed."""
    table = open_table(spec_of(tmp_path, TableFormat.DELTA))
    append(table, 0, pa.RecordBatch.from_pylist([{"id": 1, "v": "a"}], COLUMNS))
    tries = []

    def refuse(*arguments: object, **settings: object) -> None:
        tries.append(arguments)
        raise CommitFailedError("Unsupported table features required: [New]")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", refuse)
    with pytest.raises(TableError, match=r"does not take the commit: Unsupported table features required"):
        append(table, 1, pa.RecordBatch.from_pylist([{"id": 2, "v": "b"}], COLUMNS))
    assert 1 == len(tries)


def test_a_requirement_that_fails_on_the_same_table_is_no_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A REST catalog reports it as it does a conflict; it was tried a hundred times."""
    monkeypatch.setattr(iceberg_table, "WAIT_S", 0)
    table = open_table(spec_of(tmp_path, TableFormat.ICEBERG))
    assert isinstance(table, IcebergTable)
    append(table, 0, pa.RecordBatch.from_pylist([{"id": 1, "v": "a"}], COLUMNS))
    tries = []
    commit_table = table._catalog.commit_table

    def refuse(*arguments: Any) -> Any:
        tries.append(arguments)
        raise CommitFailedException("Requirement failed: current schema changed: expected id 0 != 1")

    monkeypatch.setattr(table._catalog, "commit_table", refuse)
    row = pa.RecordBatch.from_pylist([{"id": 2, "v": "b"}], COLUMNS)
    with pytest.raises(TableError, match="does not take the commit: Requirement failed: current schema ch"):
        append(table, 1, row)
    assert iceberg_table.UNCHANGED_MAX == len(tries)

    def refuse_twice(*arguments: Any) -> Any:
        tries.append(arguments)
        if len(tries) < 3:
            raise CommitFailedException("cannot acquire the lock")
        return commit_table(*arguments)

    tries.clear()
    monkeypatch.setattr(table._catalog, "commit_table", refuse_twice)
    append(table, 1, row)
    assert {1, 2} == {row["id"] for row in rows_of(table)}


def test_files_of_a_former_table_are_not_committed(tmp_path: Path) -> None:
    """Its field ids may be others, so that readers would see values in other columns."""
    table = open_table(spec_of(tmp_path, TableFormat.ICEBERG))
    assert isinstance(table, IcebergTable)
    table.prepare_schema(COLUMNS)
    table.fit()
    files = table.writer(COLUMNS).write(
        [pa.RecordBatch.from_pylist([{"id": 1, "v": "a"}], COLUMNS)], TaskId(QUERY, 0, 0)
    )
    table._catalog.drop_table("lake.orders")
    other = open_table(spec_of(tmp_path, TableFormat.ICEBERG))
    other.prepare_schema(pa.schema(list(reversed(COLUMNS))))

    with pytest.raises(TableError, match=r"was dropped and created again: its UUID was .*, and is"):
        table.commit(account(0, 1), files)
    assert [] == rows_of(other)


def iceberg(tmp_path: Path, schema: Schema) -> IcebergTable:
    """Create an Iceberg table as another engine does."""
    table = open_table(spec_of(tmp_path, TableFormat.ICEBERG))
    assert isinstance(table, IcebergTable)
    table._catalog.create_namespace_if_not_exists("lake")
    table._catalog.create_table("lake.orders", schema, location=table.spec.path)
    return table


@pytest.mark.parametrize(("kind", "arrow"), [("binary", "binary"), ("double", "double"), ("float", "float")])
def test_a_delta_table_with_partitions_that_have_no_text_is_refused(
    tmp_path: Path, kind: str, arrow: str
) -> None:
    """The log has texts of partitions; engines do not agree on those of bytes and of NaN."""
    delta_log(
        tmp_path,
        protocol={"minReaderVersion": 1, "minWriterVersion": 2},
        fields=[field("id"), field("part", kind)],
        partition_by=["part"],
    )
    table = open_table(spec_of(tmp_path, TableFormat.DELTA, partition_by=("part",)))

    assert [f"it is partitioned by part, which is {arrow}"] == table.faults()


def test_texts_of_a_delta_table_are_no_longer_than_spark_declares(tmp_path: Path) -> None:
    """Spark checks ``varchar(n)`` and ``char(n)`` when it writes, and relies on it when it reads."""
    kinds = {"short": "varchar(2)", "co`de": "char(3)"}
    columns = [field(name, "string", {"__CHAR_VARCHAR_TYPE_STRING": kind}) for name, kind in kinds.items()]
    delta_log(
        tmp_path, protocol={"minReaderVersion": 1, "minWriterVersion": 2}, fields=[field("id"), *columns]
    )
    table = open_table(spec_of(tmp_path, TableFormat.DELTA))
    schema = pa.schema([("id", pa.int64()), *((name, pa.string()) for name in kinds)])
    good = {"id": 1, "short": "\u00e9\U0001f600", "co`de": None}

    reasons = put(
        table,
        [good, {"id": 2, "short": "abc"}, {"id": 3, "co`de": "abcd"}, {"id": 4, "co`de": "abc"}],
        schema,
    )

    assert [True, True] == [kind in reason for kind, reason in zip(kinds.values(), reasons, strict=True)], (
        reasons
    )
    assert [1, 4] == [row["id"] for row in rows_of(table)]


def test_required_fields_of_an_iceberg_table(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "v", StringType()),
        identifier_field_ids=[1],
    )
    table = iceberg(tmp_path, schema)
    wider = pa.schema([*COLUMNS, ("new", pa.int64())])
    reasons = put(table, [{"id": 1, "v": "a", "new": 3}, {"v": "b"}], wider)

    assert ["column id=None: the column is NOT NULL"] == reasons
    assert [{"id": 1, "v": "a", "new": 3}] == rows_of(table)
    assert table._existing().schema().find_field("id").required


def test_iceberg_tables_that_are_refused(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()))
    table = iceberg(tmp_path, schema)
    with table._existing().update_spec() as update:
        update.add_field("id", BucketTransform(16), "id_bucket")
    (fault,) = table.faults()
    assert "it is partitioned by ['bucket[16](id)'], but partition_by is []" in fault
    newer = new_table_metadata(
        schema, PartitionSpec(), SortOrder(), "file:///new", properties={"format-version": "3"}
    )
    (fault,) = table_faults(newer)
    assert "its format version 3 has row lineage and deletion vectors, which are not implemented" in fault
