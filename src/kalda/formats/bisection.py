"""Decodes a batch with a function that takes or refuses it as a whole, and finds exactly the bad values.

A refused batch is halved until what is left is one value, whose error then is known. The definition of a good
value is what the function says of it alone; the function must not let values touch each other.
"""

from collections.abc import Callable

import pyarrow as pa

from kalda.formats.decoded import BadValueError, Decoded, DecodeFailure, null_rows, present, spread


def decode_by_halves(
    values: pa.BinaryArray, decode: Callable[[pa.BinaryArray], pa.StructArray], kind: pa.DataType
) -> Decoded:
    """Decode values.

    Args:
        values: The values, with nulls for tombstones.
        decode: Returns one row for each value, or raises `BadValueError` when one of them is bad.
        kind: The type of the rows.
    """
    positions = present(values)
    found = values if positions is None else values.drop_null()
    places = range(len(values)) if positions is None else positions
    failures: list[DecodeFailure] = []
    good: list[int] = []
    rows: list[pa.StructArray] = []
    waiting = [(0, len(found))] if len(found) else []
    while waiting:
        start, end = waiting.pop()
        try:
            part = decode(found.slice(start, end - start))
        except BadValueError as error:
            if end - start == 1:
                failures.append(error.at(places[start]))
            else:
                middle = (start + end) // 2
                waiting += [(middle, end), (start, middle)]
            continue
        assert len(part) == end - start, f"{len(part)} rows of {end - start} values"
        rows.append(part)
        good += places[start:end]
    if not rows:
        return Decoded(null_rows(kind, len(values)), tuple(failures))
    columns = rows[0] if len(rows) == 1 else pa.concat_arrays(rows)
    return Decoded(spread(columns, good, len(values)), tuple(failures))
