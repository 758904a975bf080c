"""What the schema registry takes for reads by id: 1,000 ids, 50 connections.

The latency is that at 2,000 reads a second, from the moment at which each read is due. The rate is that of
connections which read as fast as they get responses. The clients run in a process of their own.
"""

import asyncio
import itertools
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import httpx

from benchmarks.end_to_end import Figure
from benchmarks.http_server import http_server
from benchmarks.request_rate import processor_seconds
from kalda.testing import KaldaProcess

_IDS: Final = 1_000
_CONNECTIONS: Final = 50
_READS_PER_SECOND: Final = 2_000
_SECONDS: Final = 8.0
_WARM_UP_SECONDS: Final = 2.0


def run() -> list[Figure]:
    """Register the schemas, then read them by two kinds of clients."""
    with (
        tempfile.TemporaryDirectory(prefix="kalda-http-registry-") as directory,
        KaldaProcess(Path(directory) / "data") as kalda,
        http_server(kalda.bootstrap) as (pid, address),
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child,
    ):
        ids = _register(address)
        child.submit(_read, address, ids, 0.0, _WARM_UP_SECONDS).result()
        latencies = child.submit(_read, address, ids, _READS_PER_SECOND, _SECONDS).result()
        used = processor_seconds(pid)
        reads = len(child.submit(_read, address, ids, 0.0, _SECONDS).result())
        used = processor_seconds(pid) - used
    quantiles = statistics.quantiles(latencies, n=100)
    label = f"registry, {_IDS} ids, {_CONNECTIONS} connections"
    return [
        (f"{label}: p50 at {_READS_PER_SECOND} reads/s", quantiles[49] * 1000, "ms"),
        (f"{label}: p99 at {_READS_PER_SECOND} reads/s", quantiles[98] * 1000, "ms"),
        (f"{label}: reads", reads / _SECONDS, "reads/s"),
        (f"{label}: reads by processor time", reads / used, "reads/s"),
    ]


def _register(address: str) -> list[int]:
    """Register as many schemas as there are to be ids; return the ids."""
    ids = []
    with httpx.Client(base_url=f"http://{address}", timeout=60) as client:
        for number in range(_IDS):
            schema = (
                f'{{"type": "record", "name": "Row{number}", "fields": '
                '[{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]}'
            )
            response = client.post(f"/subjects/rows-{number}-value/versions", json={"schema": schema})
            ids.append(int(response.raise_for_status().json()["id"]))
    return ids


def _read(address: str, ids: list[int], rate: float, seconds: float) -> list[float]:
    """Read schemas over all connections; return the seconds that each read took.

    `rate` is that of all connections together; 0 means that each reads again when it has its response.
    """
    return asyncio.run(_read_all(address, ids, rate, seconds))


async def _read_all(address: str, ids: list[int], rate: float, seconds: float) -> list[float]:
    began = time.monotonic()
    taken: list[float] = []
    async with asyncio.TaskGroup() as tasks:
        for number in range(_CONNECTIONS):
            pause = _CONNECTIONS / rate if rate else 0.0
            first = began + pause * number / _CONNECTIONS
            numbers = itertools.islice(itertools.cycle(ids), number * 20, None)
            tasks.create_task(_read_over_one(address, numbers, (first, pause, began + seconds), taken))
    return taken


async def _read_over_one(
    address: str, ids: "itertools.islice[int]", due: tuple[float, float, float], taken: list[float]
) -> None:
    """Read over one connection; `due` has when the first read is due, the pause, and when to end."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    at, pause, end = due
    for schema_id in ids:
        if pause:
            await asyncio.sleep(at - time.monotonic())
        else:
            at = time.monotonic()
        if at >= end:
            break
        writer.write(f"GET /schemas/ids/{schema_id} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0]
        await reader.readexactly(int(length))
        taken.append(time.monotonic() - at)
        at += pause
    writer.close()
