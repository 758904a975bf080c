"""Keys in an Arrow column go where the same keys go one by one."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kalda.clients.producer.arrow_partitioning import UNASSIGNED, murmur2_of, partitions_of
from kalda.common.murmur2 import murmur2, partition_for_key

Keys = st.lists(st.none() | st.binary(max_size=40), max_size=30)


@given(Keys, st.integers(0, 5))
def test_the_hashes_are_those_of_single_keys(keys: list[bytes | None], start: int) -> None:
    """Also of a slice, whose buffers begin elsewhere."""
    hashes = murmur2_of(pa.array(keys, pa.binary())[start:])
    for key, found in zip(keys[start:], hashes, strict=True):
        assert key is None or murmur2(key) == int(found)


@given(Keys, st.integers(1, 100))
def test_the_partitions_are_those_of_single_keys(keys: list[bytes | None], partition_count: int) -> None:
    expected = [UNASSIGNED if key is None else partition_for_key(key, partition_count) for key in keys]
    assert expected == partitions_of(pa.array(keys, pa.binary()), partition_count).tolist()
