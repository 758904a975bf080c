"""What a message costs that goes to many NATS subscribers: rates, and processor time beside nats-server's.

One publisher sends small messages as fast as the server takes them, and each subscriber reads them all. The
clients are raw sockets in a process of their own, so that the servers are what is measured. The processor
time is the server's alone: the wall time of a run depends on what the clients leave of the machine.
"""

import multiprocessing
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from benchmarks.end_to_end import Figure
from kalda.testing import KaldaProcess
from kalda.testing.ports import free_ports_in_a_row

_MESSAGES: Final = 200_000
_SUBSCRIBERS: Final = 10
_PAYLOAD: Final = b"x" * 100
_MANY: Final = 20_000
"""Subscriptions that get one message."""

_CONNECT: Final = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
_END: Final = b"the last message"
_SUBJECT: Final = b"bench.fan.out"


def run() -> list[Figure]:
    """Fan out on Kalda, and on nats-server where it is installed."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="kalda-nats-") as directory:
        with _kalda(Path(directory)) as (port, pid):
            figures += _figures("Kalda", port, pid)
        if shutil.which("nats-server"):
            with _nats_server() as (port, pid):
                figures += _figures("nats-server", port, pid)
    return figures


def _figures(name: str, port: int, pid: int) -> list[Figure]:
    deliveries = _MESSAGES * _SUBSCRIBERS
    wall, processor = _measured(pid, lambda: _in_child(_fan_out, port))
    longest = _in_child(_many, port)
    title = f"NATS, 100 B to {_SUBSCRIBERS} subscribers, {name}"
    return [
        (title, deliveries / wall, "deliveries/s"),
        (f"{title}, by processor time", deliveries / processor, "deliveries/s"),
        (f"NATS, a PING behind a message to {_MANY} subscriptions, {name}", longest * 1000, "ms"),
    ]


def _measured(pid: int, work: Callable[[], float]) -> tuple[float, float]:
    process = psutil.Process(pid)
    before = process.cpu_times()
    wall = work()
    after = process.cpu_times()
    return wall, after.user + after.system - before.user - before.system


def _in_child(work: Callable[[int, "multiprocessing.SimpleQueue[float]"], None], port: int) -> float:
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    child = context.Process(target=work, args=(port, results))
    child.start()
    child.join()
    if child.exitcode:
        raise RuntimeError(f"the clients of NATS ended with {child.exitcode}")
    return float(results.get())


def _connected(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), 60)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while not client.recv(65536).endswith(b"\r\n"):
        pass
    client.sendall(_CONNECT)
    return client


def _pong(client: socket.socket) -> None:
    client.sendall(b"PING\r\n")
    tail = b""
    while not tail.endswith(b"PONG\r\n"):
        tail = (tail + client.recv(1 << 18))[-64:]


def _fan_out(port: int, results: "multiprocessing.SimpleQueue[float]") -> None:
    subscribers = [_connected(port) for _ in range(_SUBSCRIBERS)]
    for client in subscribers:
        client.sendall(b"SUB %b 1\r\n" % _SUBJECT)
        _pong(client)
    publisher = _connected(port)
    block = b"PUB %b %d\r\n%b\r\n" % (_SUBJECT, len(_PAYLOAD), _PAYLOAD) * 1000

    threads = [threading.Thread(target=_read_all, args=(client,)) for client in subscribers]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for number in range(_MESSAGES // 1000):
        publisher.sendall(block)
        if number % 10 == 9:
            _pong(publisher)
    publisher.sendall(b"PUB %b %d\r\n%b\r\n" % (_SUBJECT, len(_END), _END))
    for thread in threads:
        thread.join()
    results.put(time.perf_counter() - begin)


def _many(port: int, results: "multiprocessing.SimpleQueue[float]") -> None:
    """Put how long another client waits for a PONG while a message goes to many subscriptions."""
    subscriber, publisher, other = (_connected(port) for _ in range(3))
    subscriber.sendall(b"".join(b"SUB many %d\r\n" % each for each in range(_MANY)))
    _pong(subscriber)
    _pong(other)
    reading = threading.Thread(target=_read_all, args=(subscriber,))
    reading.start()
    longest = 0.0
    for _ in range(20):
        publisher.sendall(b"PUB many 1\r\nx\r\n")
        begin = time.perf_counter()
        _pong(other)
        longest = max(longest, time.perf_counter() - begin)
        _pong(publisher)
    publisher.sendall(b"PUB many %d\r\n%b\r\n" % (len(_END), _END))
    reading.join()
    results.put(longest)


def _read_all(client: socket.socket) -> None:
    """Read up to the message that comes last."""
    buffer = bytearray(1 << 20)
    tail = b""
    while _END not in tail:
        got = client.recv_into(buffer)
        if not got:
            raise RuntimeError("the server disconnected a subscriber")
        tail = (tail + buffer[max(0, got - 64) : got])[-64:]


@contextmanager
def _kalda(directory: Path) -> Iterator[tuple[int, int]]:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0,NATS://127.0.0.1:0"}
    with KaldaProcess(directory, settings=settings) as process:
        found = re.findall(r"serves clients of NATS at port (\d+)", process.log())
        yield int(found[-1]), process.pid


@contextmanager
def _nats_server() -> Iterator[tuple[int, int]]:
    port = free_ports_in_a_row(1)
    arguments = ["nats-server", "-a", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(arguments, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(300):
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield port, process.pid
        finally:
            process.terminate()
