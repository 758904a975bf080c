"""Runs `kalda http` beside the broker of the demo, so that one can watch it in a browser."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_READY = "kalda ready http="
_STOP_SECONDS = 20


@contextmanager
def console_of(bootstrap: str, log: Path) -> Iterator[str | None]:
    """Serve the console while the block runs; yield its address, or None if it did not start."""
    command = [sys.executable, "-m", "kalda", "http", "--port", "0", "--bootstrap-server", bootstrap]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            address = line.strip().removeprefix(_READY)
            yield f"http://{address}/console/" if line.startswith(_READY) else None
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
