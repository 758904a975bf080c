"""The records of MirrorMaker's internal topics."""

import pytest

from kalda.common.types import TopicPartition
from kalda.pipelines.mirror.mirror_maker_records import (
    Checkpoint,
    Heartbeat,
    MirrorMakerRecordError,
    read_checkpoint,
)

CHECKPOINT = Checkpoint("billing", TopicPartition("A.orders", 3), 100, 90, "näh")


def test_a_checkpoint_has_the_bytes_of_java() -> None:
    """Strings with a length of two bytes, numbers big-endian, the version first (`Checkpoint.java`)."""
    assert b"\x00\x07billing\x00\x08A.orders\x00\x00\x00\x03" == CHECKPOINT.key()
    offsets = (100).to_bytes(8, "big") + (90).to_bytes(8, "big")
    assert b"\x00\x00" + offsets + b"\x00\x04n\xc3\xa4h" == CHECKPOINT.value()
    assert CHECKPOINT == read_checkpoint(CHECKPOINT.key(), CHECKPOINT.value())


def test_a_heartbeat_has_the_bytes_of_java() -> None:
    heartbeat = Heartbeat("A", "B", 258)

    assert b"\x00\x01A\x00\x01B" == heartbeat.key()
    assert b"\x00\x00" + (258).to_bytes(8, "big") == heartbeat.value()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", CHECKPOINT.value()),
        (CHECKPOINT.key()[:-1], CHECKPOINT.value()),
        (b"\xff\xff" + CHECKPOINT.key(), CHECKPOINT.value()),
        (CHECKPOINT.key(), CHECKPOINT.value()[:-1]),
        (CHECKPOINT.key(), b"\x00\x01" + CHECKPOINT.value()[2:]),
    ],
)
def test_other_records_are_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(MirrorMakerRecordError):
        read_checkpoint(key, value)
