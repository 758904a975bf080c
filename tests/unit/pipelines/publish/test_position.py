"""The progress of a published table, as it is committed."""

import pytest

from kalda.pipelines.publish.position import Position, PositionError, Step


def test_a_position_comes_back() -> None:
    position = Position("file:///t", Step.CHANGES, 7, 1000, False, 6)

    assert position == Position.from_json(position.to_json())


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"table": "t", "step": "other"}', "null"])
def test_other_metadata_is_refused(text: str) -> None:
    """The group may have been used by a consumer before."""
    with pytest.raises(PositionError, match="is no progress of a published table"):
        Position.from_json(text)
