"""The value that names the topics which a group reads."""

from uuid import UUID

import pytest

from kalda.common.types import ZERO_UUID
from kalda.spark.source.topic_ids import TopicIdsFormatError, decode_topic_ids, encode_topic_ids

IDS = {"t": UUID(int=1), "u": UUID(int=2)}


def test_round_trip() -> None:
    """A topic of a cluster without ids is left out."""
    assert IDS == decode_topic_ids(encode_topic_ids(IDS | {"v": ZERO_UUID}))
    assert {} == decode_topic_ids(encode_topic_ids({}))


@pytest.mark.parametrize("end", range(len(encode_topic_ids(IDS))))
def test_a_part_of_a_value_is_refused(end: int) -> None:
    with pytest.raises(TopicIdsFormatError, match="holds no topic ids"):
        decode_topic_ids(encode_topic_ids(IDS)[:end])


@pytest.mark.parametrize(
    "value",
    [
        b"null",
        b"[]",
        b'{"version":2,"topics":{}}',
        b'{"version":1,"topics":[]}',
        b'{"version":1,"topics":{"t":5}}',
        b"[" * 99999,
        b"\xff",
    ],
)
def test_other_values_are_refused(value: bytes) -> None:
    with pytest.raises(TopicIdsFormatError, match="__kalda_sources"):
        decode_topic_ids(value)
