"""Records for a page: what is in the ranges, and no more bytes than asked for."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest

from kalda.common.types import TopicPartition
from kalda.http.console import record_reading
from kalda.http.console.record_reading import read_ranges


@dataclass(frozen=True, slots=True)
class Stored:
    offset: int
    value: bytes | None
    key: bytes | None = b"k"
    partition: int = 0


class Log:
    """A consumer of one partition that returns two records with each poll."""

    def __init__(self, values: Sequence[bytes | None]) -> None:
        self.records = [Stored(offset, value) for offset, value in enumerate(values)]
        self.next = 0

    async def assign(self, partitions: Mapping[TopicPartition, object]) -> None:
        assert [TopicPartition("t", 0)] == list(partitions)

    async def seek(self, _: TopicPartition, offset: int) -> None:
        self.next = offset

    async def poll(self, *_: object) -> list[Stored]:
        found = self.records[self.next : self.next + 2]
        self.next += len(found)
        return found

    async def position(self, _: TopicPartition) -> int:
        return self.next

    async def pause(self, _: object) -> None: ...


@pytest.mark.parametrize(
    ("bytes_max", "expected"),
    [(None, [1, 2, 3, 4, 5]), (1_000, [1, 2, 3, 4, 5]), (22, [4, 5]), (21, [5]), (0, [])],
)
async def test_later_records_take_the_place_of_earlier_ones(
    monkeypatch: pytest.MonkeyPatch, bytes_max: int | None, expected: list[int]
) -> None:
    log = Log([b"v" * 10] * 7)

    @asynccontextmanager
    async def opened(_: object) -> AsyncIterator[Log]:
        yield log

    monkeypatch.setattr(record_reading, "open_consumer", opened)

    found = await read_ranges(cast(Any, None), "t", {0: (1, 6)}, bytes_max=bytes_max)

    assert expected == [record.offset for record in found]


async def test_a_range_without_records_is_not_read() -> None:
    assert [] == await read_ranges(cast(Any, None), "t", {0: (4, 4)})
