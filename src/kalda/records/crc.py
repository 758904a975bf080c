"""Computes CRC-32C (Castagnoli), the checksum of record batches; zlib's CRC uses another polynomial.

The C extension uses the processor's CRC instruction and releases the GIL for inputs above 32 KiB, so other
threads run while a large batch is checked.

The extension module is loaded without the package around it. The package reads its own version through
`importlib.metadata`, which would cost each broker 20 ms at start and 4 MB of memory.
"""

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Final, Protocol

Buffer = bytes | bytearray | memoryview

_EXTENSION: Final = "crc32c._crc32c"


class Checksum(Protocol):
    """A function that computes the checksum of bytes, optionally continuing an earlier checksum."""

    def __call__(self, data: Buffer, value: int = 0, /) -> int:
        """Return the checksum of `data`, continuing from `value`, the checksum of the preceding bytes."""
        ...


def _load() -> Checksum:
    package = find_spec("crc32c")
    spec = None
    if package is not None:
        spec = PathFinder.find_spec(_EXTENSION, package.submodule_search_locations)
    if spec is None or spec.loader is None:
        # Another layout of the package, or no package: the ordinary import works or raises.
        from crc32c import crc32c as function

        return function
    extension = module_from_spec(spec)
    spec.loader.exec_module(extension)
    loaded: Checksum = extension.crc32c
    return loaded


# The extension's own function: a Python wrapper would add a seventh to checking a small batch.
crc32c: Final = _load()
