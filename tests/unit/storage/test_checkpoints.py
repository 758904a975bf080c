"""What a loss of power leaves of a checkpoint is never read as another one."""

import pytest

from kalda.common.types import TopicPartition
from kalda.storage.checkpoints import (
    format_leader_epochs,
    format_offset_checkpoint_lines,
    offset_checkpoint_line,
    parse_leader_epochs,
    parse_offset_checkpoint,
)
from kalda.storage.errors import CorruptCheckpointError

EPOCHS = [(0, 0), (1, 417)]
OFFSETS = {TopicPartition("t", 0): 12, TopicPartition("t", 1): 34}


def test_leader_epochs_that_were_cut_are_damaged() -> None:
    """(1, 4) would have the log of epoch 1 begin 413 records too early."""
    whole = format_leader_epochs(EPOCHS)
    assert EPOCHS == parse_leader_epochs(whole)
    for size in range(1, len(whole)):
        with pytest.raises(CorruptCheckpointError):
            parse_leader_epochs(whole[:size])


def test_offsets_that_were_cut_are_damaged() -> None:
    whole = format_offset_checkpoint_lines([offset_checkpoint_line(*each) for each in OFFSETS.items()])
    assert OFFSETS == parse_offset_checkpoint(whole)
    for size in range(1, len(whole)):
        with pytest.raises(CorruptCheckpointError):
            parse_offset_checkpoint(whole[:size])
