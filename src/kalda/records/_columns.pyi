from collections.abc import Sequence

from typing_extensions import Buffer

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
