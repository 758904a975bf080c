import pytest

from kalda.clients.consumer.assignors.java_order import (
    HashOrderedSet,
    hash_order,
    partition_hash,
    sort_key,
    string_hash,
)
from kalda.common.types import TopicPartition


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("hello", 99162322), ("ü😀", (0xFC * 31 + 0xD83D) * 31 + 0xDE00)],
)
def test_strings_hash_as_in_java(text: str, expected: int) -> None:
    """Values of `String.hashCode`; the last one is computed from its UTF-16 units."""
    assert expected == string_hash(text)


def test_strings_sort_by_their_utf16_units() -> None:
    """In Java, U+1F600 sorts before U+FF5E because its first unit is a surrogate."""
    assert ["\U0001f600", "\uff5e"] == sorted(["\uff5e", "\U0001f600"], key=sort_key)


def test_names_come_out_in_the_order_of_a_hash_map() -> None:
    """Checked with Java 17: iteration goes by the low bits of the hash, not by insertion."""
    assert ["banana", "apple", "cherry"] == hash_order(["apple", "banana", "cherry", "apple"])


def test_a_larger_table_has_another_order() -> None:
    """A map grows when more than three quarters of its buckets' number are in it."""
    names = [f"member-{number:02d}" for number in range(13)]
    assert hash_order(names)[:12] != hash_order(names[:12])


def test_a_set_keeps_its_table_when_it_shrinks() -> None:
    """Java's tables never shrink, so the order stays that of the largest size."""
    partitions = [TopicPartition("t", number) for number in range(20)]
    kept = HashOrderedSet[TopicPartition](partition_hash)
    for partition in partitions:
        kept.add(partition)
    order = list(kept)
    for partition in partitions[5:]:
        kept.discard(partition)
    assert [each for each in order if each.partition < 5] == list(kept)
    assert 5 == len(kept)
    assert next(iter(kept)) == kept.first()
