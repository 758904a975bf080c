from collections.abc import Callable, Container, Sequence
from typing import TypeVar

from typing_extensions import Buffer

_Row = TypeVar("_Row")

INTERFACE: int

BinaryColumn = tuple[int, Buffer | None, Buffer, Buffer | None]
"""The first row, validity bits, ends and data of a column as Arrow lays out ``binary``."""

def scan(
    data: Buffer, sections: Buffer, first: int, last: int, reads_headers: bool, columns: Sequence[Buffer]
) -> tuple[int, int, int, int, int, int, int, int, int] | None: ...
def copy_bytes(data: Buffer, starts: Buffer, ends: Buffer, rows: int, out: Buffer) -> None: ...
def fill_views(data: Buffer, starts: Buffer, ends: Buffer, rows: int, out: Buffer) -> None: ...
def fill_validity(starts: Buffer, rows: int, out: Buffer) -> None: ...
def fill_header_fields(
    data: Buffer, starts: Buffer, ends: Buffer, rows: int, columns: Sequence[Buffer]
) -> None: ...
def encode_records(
    keys: BinaryColumn | None,
    values: BinaryColumn | None,
    headers: BinaryColumn | None,
    times: Buffer,
    rows: int,
    prefix: int,
) -> bytearray | None: ...
def encode_headers(
    lists: BinaryColumn,
    keys: BinaryColumn | None,
    values: BinaryColumn | None,
    entries: int,
    rows: int,
    ends: Buffer,
) -> bytearray | None: ...
def decode_rows(
    data: bytes,
    position: int,
    count: int,
    row_type: type[_Row],
    topic: str,
    partition: int,
    timestamp_type: object,
    leader_epoch: int | None,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    key_deserializer: Callable[[bytes], object] | None,
    value_deserializer: Callable[[bytes], object] | None,
    rows: list[_Row],
) -> int: ...
def append_record(
    records: bytearray,
    time_field: bytes,
    offset_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    header_field: bytes,
) -> int: ...
def append_messages(
    records: bytearray,
    data: Buffer,
    position: int,
    magic: int,
    bytes_max: int,
    room: int,
    base_timestamp: int,
    first_delta: int,
) -> tuple[tuple[int, int], int, int, int]: ...
def append_records_as_messages(
    target: bytearray,
    data: Buffer,
    position: int,
    count: int,
    magic: int,
    is_relative: bool,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    first_offset: int,
    start_offset: int | None,
    last_offset: int,
) -> tuple[int, int, int, int, int, int]: ...
def read_plain(batch: Buffer, checksum: Callable[[memoryview], int]) -> tuple[int, int, int] | None: ...
def decode_records(
    data: bytes,
    position: int,
    count: int,
    record_type: type[_Row],
    timestamp_type: object,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    records: list[_Row],
) -> int: ...
def note_keys(
    places: dict[bytes, int],
    data: bytes,
    position: int,
    end: int,
    count: int,
    place: int,
    key_size_max: int,
    shorten: Callable[[bytes], bytes],
) -> tuple[bool, int] | None: ...
def scan_keys(
    data: bytes, position: int, end: int, count: int
) -> tuple[list[bytes | None], list[int], list[int]] | None: ...
def map_batches(
    places: dict[bytes, int],
    chunk: bytes,
    position: int,
    first_dirty: int,
    room: int,
    key_size_max: int,
    shorten: Callable[[bytes], bytes],
    tombstone_batches: list[int],
    crc32c: Callable[[memoryview], int],
) -> tuple[int, int, int, bool]: ...
def sort_values(places: dict[bytes, int], numbers: Buffer) -> bool: ...
def filter_batches(
    chunk: bytes,
    position: int,
    places: Buffer,
    at: int,
    first_dirty: int,
    latest_offset: int,
    tombstone_batches: Container[int],
    last_records: Container[int],
) -> tuple[int, int, int, int, list[tuple[int, int]]]: ...
def index_batches(
    chunk: bytes,
    spans: list[tuple[int, int]],
    position: int,
    last_entry: int,
    interval: int,
    largest_timestamp: int,
    largest_offset: int,
) -> tuple[int, int, int, int, list[tuple[int, int, int, int]]]: ...
def copy_records(
    data: bytes, start: int, end: int, places: Buffer, base_timestamp: int, highest: int
) -> tuple[bytearray, int] | None: ...

class RecordScanner:
    index: int
    fault: int
    found_delta: int
    found_time: int
    keyless_count: int
    time_count: int
    named: list[tuple[int, int | None]]
    is_between: bool
    has_headers: bool
    def __init__(
        self,
        count: int,
        base_timestamp: int,
        append_time: int | None,
        require_keys: bool,
        low: int,
        high: int,
        named_max: int,
        delta_min: int | None = None,
    ) -> None: ...
    def feed(self, piece: Buffer) -> bool: ...
