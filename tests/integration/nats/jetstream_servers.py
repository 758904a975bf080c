"""Brokers and nats-servers with JetStream for tests."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kalda.testing import KaldaProcess

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,NATS://127.0.0.1:0",
    "kalda.nats.jetstream.enable": "true",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
}


def jetstream_broker(directory: Path, **more: str) -> KaldaProcess:
    """Return a broker that serves JetStream."""
    return KaldaProcess(directory, settings=SETTINGS | more)


@contextmanager
def nats_server_port(directory: Path) -> Iterator[int]:
    """Run a nats-server with JetStream; yield its port."""
    program = shutil.which("nats-server")
    if program is None:
        pytest.skip("there is no nats-server")
    log = directory / "log"
    with log.open("wb") as out:
        command = [program, "--addr", "127.0.0.1", "--port", "-1", "-js", "-sd", str(directory / "store")]
        process = subprocess.Popen(command, stderr=out)
    try:
        while not (found := re.search(r"client connections on 127.0.0.1:(\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
        yield int(found[1])
    finally:
        process.terminate()
        process.wait()
