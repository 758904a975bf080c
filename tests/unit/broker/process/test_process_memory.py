"""Freed memory is kept for the next request where the C library is glibc."""

import os
import platform
import subprocess
import sys

import pytest

_PROGRAM = """
import resource
from kalda.broker.process.malloc_tuning import keep_freed_memory
keep_freed_memory()
# On the heap, so that what follows is at its top.
for _ in range(3):
    buffers = [bytearray(b"x") * 1_000_000 for _ in range(3)]
    del buffers
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    buffers = [bytearray(b"x") * 1_000_000 for _ in range(3)]
    del buffers
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(**environment: str) -> int:
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))
    }
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=variables | environment,
        capture_output=True,
        check=True,
        text=True,
    )
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these thresholds")
def test_freed_memory_is_used_again_and_the_environment_goes_first() -> None:
    pages = 3 * 50 * 1_000_000 // os.sysconf("SC_PAGE_SIZE")
    assert page_faults() < pages / 50
    assert page_faults(MALLOC_TRIM_THRESHOLD_="0", MALLOC_MMAP_THRESHOLD_="65536") > pages / 2
