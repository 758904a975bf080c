import json
from uuid import UUID

import pytest

from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.spark.source.offsets import (
    OffsetFormatError,
    anchor_offset,
    from_spark_offset,
    is_anchor,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
    to_spark_offset,
    topic_ids_of,
)

A0, A2, A10, B0 = (
    TopicPartition("a", 0),
    TopicPartition("a", 2),
    TopicPartition("a", 10),
    TopicPartition("b", 0),
)


def test_equal_offsets_are_equal_text() -> None:
    """Spark compares offsets as JSON text; another order would look like new data for ever."""
    one = json.dumps(to_spark_offset({B0: 1, A10: 2, A2: 3, A0: 4}))
    other = json.dumps(to_spark_offset({A0: 4, A2: 3, A10: 2, B0: 1}))

    assert '{"a": {"0": 4, "2": 3, "10": 2}, "b": {"0": 1}}' == one == other


def test_what_is_logged_reads_back() -> None:
    offsets = {A0: 0, A10: 2**62, B0: 7}

    assert offsets == from_spark_offset(json.loads(json.dumps(to_spark_offset(offsets))))


def test_a_checkpoint_says_which_topics_its_offsets_belong_to() -> None:
    """Spark's own connector takes the entry for a topic without a partition, and leaves it out."""
    ids = {"a": UUID(int=1), "b": ZERO_UUID, "c": UUID(int=3)}
    offset = to_spark_offset({A0: 4, B0: 1}, ids)

    assert {"a": {"0": 4}, "b": {"0": 1}, "a@00000000-0000-0000-0000-000000000001": {}} == offset
    assert {"a": UUID(int=1)} == topic_ids_of(offset)
    assert {A0: 4, B0: 1} == from_spark_offset(offset)
    assert {} == topic_ids_of({"a": {"0": 4}, "a@x": {}, "@": {}, f"b@{UUID(int=1)}": {"0": 1}})


def test_anchor_is_constant_and_no_topic_can_be_taken_for_it() -> None:
    assert anchor_offset() == anchor_offset()
    assert is_anchor(anchor_offset())
    assert not is_anchor({})
    assert not is_anchor(to_spark_offset({TopicPartition("__start__", 0): 1}))


def test_option_json() -> None:
    assert {A0: 23, B0: -2} == parse_offsets('{"a":{"0":23},"b":{"0":-2}}')
    assert {A0: 1000} == parse_timestamps('{"a":{"0":1000}}')
    assert (A0, A2) == parse_partitions('{"a":[2,0,2]}')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        '{"a":3}',
        '{"a":{"x":1}}',
        '{"a":{"-1":1}}',
        '{"a":{"0":1.5}}',
        '{"a":{"0":true}}',
        '{"a":{"0":-3}}',
        '{"a":{"0":9223372036854775808}}',
        '{"a":{"0":null}}',
        '{"a":{"0":1}',
        "[" * 100_000,
    ],
)
def test_junk_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(OffsetFormatError, match="expected JSON such as"):
        parse_offsets(text)


@pytest.mark.parametrize("text", ["{}", '{"a":[]}', '{"a":[-1]}', '{"a":["0"]}', '{"a":{"0":1}}', "[0]"])
def test_junk_assignments_are_refused(text: str) -> None:
    with pytest.raises(OffsetFormatError, match="expected JSON such as"):
        parse_partitions(text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"a":{"0":1},"b":{"0":1},"a":{"1":1}}', "names 'a' twice"),
        ('{"a":{"0":1,"2":1,"0":5}}', "names '0' twice"),
        ('{"a":{"0":1,"00":5}}', "names a-0 twice"),
    ],
)
def test_a_doubled_key_is_refused(text: str, named: str) -> None:
    """JSON's parser would take the last value, and the offset that was meant may be the first."""
    for parse in (parse_offsets, parse_timestamps):
        with pytest.raises(OffsetFormatError, match=named):
            parse(text)


def test_a_doubled_topic_of_an_assignment_is_refused() -> None:
    with pytest.raises(OffsetFormatError, match="names 'a' twice"):
        parse_partitions('{"a":[0],"a":[1]}')


def test_a_checkpoint_of_another_source_is_refused() -> None:
    with pytest.raises(OffsetFormatError, match="expected JSON such as"):
        from_spark_offset({"logOffset": 3})
