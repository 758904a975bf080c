"""Chooses the columns of a Parquet file that are worth a dictionary, from a sample of the first row group.

Without this choice, Parquet's writer builds a dictionary for each column and gives it up when that has grown
to a megabyte: for keys, offsets and payloads, whose values hardly ever repeat, the work is lost, and the file
is a little larger. It decides alone, no I/O. The choice changes the size of a file, never its contents.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

SAMPLE_ROWS: Final = 4_096
DISTINCT_SHARE_MAX: Final = 0.5
"""With more distinct values among the sampled ones, a dictionary costs more than it saves."""


def dictionary_columns(table: pa.Table) -> list[str]:
    """Return the paths, by Parquet's names, of the columns whose values repeat in the table's first rows.

    Columns inside lists, structures and maps are all among them.
    """
    return [
        path
        for field in table.schema
        for path in _leaves(field.name, field.type)
        if pa.types.is_nested(field.type) or _repeats(table.column(field.name))
    ]


def _repeats(column: pa.ChunkedArray) -> bool:
    sample = column.slice(0, SAMPLE_ROWS)
    present = len(sample) - sample.null_count
    return bool(pc.count_distinct(sample, mode="only_valid").as_py() <= present * DISTINCT_SHARE_MAX)


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """Yield the columns that a type is stored as: ``tags`` of type list → ``tags.list.element``."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path
