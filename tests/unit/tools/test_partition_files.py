"""The files of `delete-records` and `elect-leaders`."""

from typing import Any

import pytest

from kalda.command.errors import ToolUsageError
from kalda.common.types import TopicPartition
from kalda.tools.partition_files import parse_offsets, parse_partitions

ENTRY: Any = {"topic": "foo", "partition": 1, "offset": 7}


def test_partitions_and_offsets_are_read() -> None:
    assert [TopicPartition("foo", 1)] == parse_partitions({"partitions": [ENTRY]}, "file")
    assert {TopicPartition("foo", 1): 7} == parse_offsets({"partitions": [ENTRY], "version": 1}, "file")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, '"partitions" must be a list of objects, at least one'),
        ({"partitions": []}, "at least one"),
        ({"partitions": ["foo"]}, 'has no "topic" with a text'),
        ({"partitions": [{**ENTRY, "partition": -1}]}, '"partition" with a number'),
        ({"partitions": [{**ENTRY, "offset": "7"}]}, '"offset" of partition foo-1 must be a number'),
        ({"partitions": [{**ENTRY, "offset": -2}]}, "at least 0, or -1 for the end"),
        ({"partitions": [ENTRY, ENTRY]}, "names partition foo-1 twice"),
        ({"partitions": [ENTRY], "version": 2}, "reads version 1"),
    ],
)
def test_other_forms_are_refused_with_the_place(document: Any, expected: str) -> None:
    with pytest.raises(ToolUsageError, match=f"^file.*{expected}"):
        parse_offsets(document, "file")
