from collections.abc import Callable
from typing import Final, TypeVar

P = TypeVar("P")
Fetched = tuple[bytes, int, int, int, int, None, memoryview | None]

INTERFACE: Final[int]

def read_header(frame: memoryview, client_id: bytes | None) -> tuple[int, int, int, int] | None: ...
def parse_produce(
    frame: memoryview, position: int, version: int
) -> tuple[int, int, bytes, int, memoryview, bool] | None: ...
def is_plain_records(records: memoryview | None) -> bool: ...
def parse_produce_topics(
    frame: memoryview, position: int, version: int
) -> tuple[bytes | None, int, int, list[tuple[bytes, list[tuple[int, memoryview | None]]]], int] | None: ...
def single_success(
    correlation_id: int,
    version: int,
    topic: bytes,
    index: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> bytes | None: ...
def parse_fetch(
    frame: memoryview, position: int, version: int, make_partition: Callable[[tuple[int, ...]], P]
) -> tuple[int, int, int, int, int, int, int, int, list[tuple[bytes, list[P]]], bytes] | None: ...
def parse_fetched(
    frame: memoryview, position: int, make_partition: Callable[[Fetched], P]
) -> tuple[int, int, int, list[P]] | None: ...
