"""The hash of keys: every bit has to be Java's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as other_murmur2

from kalda.common.murmur2 import murmur2, partition_for_key

JAVA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""The cases of `testMurmur2` in Kafka's UtilsTest."""


@pytest.mark.parametrize(("key", "expected"), JAVA_VECTORS.items())
def test_the_hash_is_that_of_java(key: bytes, expected: int) -> None:
    assert expected & 0xFFFFFFFF == murmur2(key)


@given(st.binary(max_size=200))
def test_the_hash_is_that_of_another_client(key: bytes) -> None:
    assert other_murmur2(key) & 0xFFFFFFFF == murmur2(key)


@pytest.mark.parametrize("key", [b"", b"k", b"x" * 64, b"x" * 65])
def test_a_partition_is_the_positive_hash_modulo_the_count(key: bytes) -> None:
    """Short keys come from a cache, long ones do not; both give the same."""
    assert (murmur2(key) & 0x7FFFFFFF) % 7 == partition_for_key(key, 7)
