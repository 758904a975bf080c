"""What fills the records of a response to an old client, whose size was sent before they were converted."""

import struct

import pytest

from kalda.broker.fetching.down_conversion import _filling
from kalda.records.batch import iter_headers


@pytest.mark.parametrize("size", [*range(80), 1_000, 300_000])
def test_filling_is_the_front_of_a_message_that_passes_it(size: int) -> None:
    """A client ignores a message that is not whole, but not one whose length no message has."""
    filling = _filling(size)
    assert size == len(filling)
    assert [] == list(iter_headers(filling))
    if size >= 12:
        length: int = struct.unpack_from(">i", filling, 8)[0]
        assert length >= 14
        assert 12 + length > size
