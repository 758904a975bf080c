"""Which columns of a Parquet file get a dictionary."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kalda.pipelines.spec.model import Compression, TableFormat
from kalda.pipelines.tables import open_table
from kalda.pipelines.tables.dictionaries import dictionary_columns
from tests.unit.pipelines.tables.table_cases import append, spec_of

COUNT = 5_000
ROWS = pa.record_batch(
    {
        "id": pa.array(range(COUNT), pa.int64()),
        "payload": pa.array([b"%d" % number for number in range(COUNT)]),
        "country": pa.array([("de", "fr", None)[number % 3] for number in range(COUNT)]),
        "empty": pa.nulls(COUNT, pa.string()),
        "tags": pa.array([[{"name": "a", "weights": [1, 2]}]] * COUNT),
        "counts": pa.array([[("a", 1)]] * COUNT, pa.map_(pa.string(), pa.int32())),
    }
)


def test_columns_whose_values_repeat_get_a_dictionary() -> None:
    """A dictionary of values that never repeat is built, grows too large and is given up."""
    nested = [
        "tags.list.element.name",
        "tags.list.element.weights.list.element",
        "counts.key_value.key",
        "counts.key_value.value",
    ]
    assert ["country", "empty", *nested] == dictionary_columns(pa.Table.from_batches([ROWS]))


def test_the_paths_are_those_of_the_file(tmp_path: Path) -> None:
    """Parquet's writer ignores a path that it does not know."""
    table = pa.Table.from_batches([ROWS])
    columns = dictionary_columns(table)
    pq.write_table(table, tmp_path / "rows.parquet", use_dictionary=columns)
    group = pq.read_metadata(tmp_path / "rows.parquet").row_group(0)
    found = [group.column(index) for index in range(group.num_columns)]
    assert columns == [each.path_in_schema for each in found if each.has_dictionary_page]


def test_files_are_compressed_as_the_spec_says(tmp_path: Path) -> None:
    """The codec is the user's choice; it is in the footer of each column."""
    table = open_table(spec_of(tmp_path, TableFormat.PARQUET, compression=Compression.ZSTD))
    append(table, 0, ROWS)
    (file,) = (tmp_path / "lake" / "orders").glob("*.parquet")
    group = pq.read_metadata(file).row_group(0)
    assert {"ZSTD"} == {group.column(index).compression for index in range(group.num_columns)}
