"""Runs `kalda http` beside a benchmark's broker."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def http_server(bootstrap: str) -> Iterator[tuple[int, str]]:
    """Start the server; yield its process id and its address, ``host:port``."""
    command = [sys.executable, "-m", "kalda", "http", "--bootstrap-server", bootstrap, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout.readline().strip().rpartition("=")[2]
        finally:
            process.terminate()
