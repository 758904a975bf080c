"""The checksum, against the vectors of RFC 3720 appendix B.4 and the package's own entry point."""

import subprocess
import sys

import crc32c as package
import pytest

from kalda.records.crc import crc32c


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_checksum_is_castagnolis(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum == package.crc32c(data)
    assert checksum == crc32c(memoryview(bytearray(data)))


def test_checksum_goes_on_from_an_earlier_one() -> None:
    assert 0xE3069283 == crc32c(b"56789", crc32c(b"1234"))


def test_start_does_not_pay_for_package_metadata() -> None:
    """It would cost each broker 20 ms and 4 MB; see the module."""
    code = "import sys, kalda.records.record; print('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "False" == done.stdout.strip()
