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


@pytest.mark.parametrize(
    "offset", ["9" * 20, "-" + "9" * 20, "9" * 5000, f"{2**63 - 1}", "1_0", "+5", "٣", "5\t", "--5"]
)
def test_what_is_no_number_of_64_bits_is_damaged(offset: str) -> None:
    """A log continued at the offset that its checkpoint named, and no append fitted there."""
    with pytest.raises(CorruptCheckpointError, match="is not a number"):
        parse_offset_checkpoint(f"0\n1\nt 0 {offset}\n".encode())
    with pytest.raises(CorruptCheckpointError, match="is not a number"):
        parse_leader_epochs(f"0\n1\n1 {offset}\n".encode())
