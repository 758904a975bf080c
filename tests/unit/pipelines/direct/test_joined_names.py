"""Fields whose names differ by case alone, where SQL or a table has one column for both."""

import json
import pickle

import pyarrow as pa

from kalda.formats import FormatSpec, open_decoder
from kalda.pipelines.direct.joined_names import NamesJoined


def test_each_value_says_which_name_it_uses() -> None:
    """Spark refused the whole batch, by one record with a stray name; directly some steps did, too."""
    values = pa.array(
        [
            b'{"id":1,"a":{"x":1}}',
            b'{"ID":2.5,"a":{"X":"no number"}}',
            b'{"id":3,"ID":null}',
            b'{"id":4,"ID":5}',
            b"junk",
            None,
            b'{"A":{"x":6},"a":{"x":7}}',
        ],
        pa.binary(),
    )
    inferred = NamesJoined(open_decoder(FormatSpec("json")))
    known = inferred.with_columns(inferred.columns(values))
    joined: NamesJoined = pickle.loads(pickle.dumps(known))

    made = joined.decode(values)

    assert [
        {"id": 1.0, "a": {"x": 1}},
        None,
        {"id": 3.0, "a": None},
        None,
        None,
        None,
        None,
    ] == made.columns.to_pylist()
    assert [(1, "TypeMismatch"), (3, "AmbiguousName"), (4, "MalformedValue"), (6, "AmbiguousName")] == [
        (each.row, each.error_class) for each in made.errors
    ]
    assert "a.X: string is no int64" in made.errors[0].message
    assert "the value has id and ID, whose names differ by case alone" in made.errors[1].message


def test_declared_columns_are_joined() -> None:
    decoder = NamesJoined(open_decoder(FormatSpec("json", "Id int, v string, ID bigint")))

    made = decoder.decode(pa.array([json.dumps(each).encode() for each in ({"Id": 1}, {"ID": 2**40})]))

    assert pa.schema([("Id", pa.int64()), ("v", pa.string())]) == decoder.schema()
    assert [{"Id": 1, "v": None}, {"Id": 2**40, "v": None}] == made.columns.to_pylist()


def test_names_that_differ_by_more_are_left_alone() -> None:
    decoder = open_decoder(FormatSpec("json", "id int, v string"))
    values = pa.array([b'{"id":1}', b"junk"])

    assert decoder.decode(values) == NamesJoined(decoder).decode(values)
