"""Starts sources of streams as Spark's virtual machine does, and prints a line of JSON about each.

It is a process of its own since a server of sources belongs to the process that starts them.
"""

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kalda.spark import startup
from kalda.spark.startup.sitecustomize import SOURCE_MODULE

WAIT_SECONDS = 120.0


@contextmanager
def source(listener: socket.socket, **environment: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Give the process that was started and the id that the source sends, while the two are connected."""
    given = {
        **os.environ,
        "PYTHONPATH": str(Path(startup.__file__).parent),
        "PYTHON_WORKER_FACTORY_PORT": str(listener.getsockname()[1]),
        "PYTHON_WORKER_FACTORY_SECRET": "secret",
        **environment,
    }
    process = subprocess.Popen([sys.executable, "-m", SOURCE_MODULE], env=given, stderr=subprocess.DEVNULL)
    connection, _ = listener.accept()
    with connection, connection.makefile("rwb") as stream:
        (size,) = struct.unpack(">i", stream.read(4))
        assert b"secret" == stream.read(size)
        stream.write(struct.pack(">i", 2) + b"ok")
        stream.flush()
        (sent,) = struct.unpack(">i", stream.read(4))
        yield process, sent
    process.wait(WAIT_SECONDS)


def lives(process: int) -> bool:
    """Return whether a process runs; one that waits to be reaped does not."""
    with contextlib.suppress(OSError):
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    return False


def until(condition: Callable[[], bool]) -> bool:
    """Return whether a condition came true in time."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def send_to_server(data: bytes) -> None:
    """Send to the server of this process what no source sends, and wait until the server closes."""
    prefix = f"@kalda-spark-source-{os.getuid()}-{os.getpid()}-"
    names = {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if prefix in line}
    (name,) = names
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(WAIT_SECONDS)
        connection.connect("\0" + name[1:])
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
            assert b"" == connection.recv(1)


def main() -> None:
    """Start sources, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT_SECONDS)

        def report(name: str, **values: object) -> None:
            print(json.dumps({"name": name, **values}), flush=True)

        def start(name: str, **environment: str) -> None:
            with source(listener, **environment) as (process, sent):
                is_fork = sent != process.pid
                parent = int(Path(f"/proc/{sent}/stat").read_text().rpartition(")")[2].split()[1])
            report(name, is_fork=is_fork, status=process.returncode, parent=parent)

        start("first")
        start("second")
        start("other environment", TZ="Asia/Tokyo")
        start("switched off", KALDA_SPARK_KEEP_SOURCE="0")
        with source(listener) as (process, sent):
            process.terminate()
            report("ended", is_fork=sent != process.pid, is_gone=until(lambda: not lives(sent)))
        for data in (b"\0\0\0\x01x", b"\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n"):
            send_to_server(data)
        start("behind junk")


if __name__ == "__main__":
    main()
