"""`kalda nats pub|sub|req` on a broker's listener."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kalda.command.examples import EXAMPLES
from kalda.testing import KaldaProcess
from tests import forked_commands
from tests.integration.nats.raw_nats import RawClient, nats_port
from tests.integration.tools.commands import KALDA
from tests.integration.tools.example_lines import run_line, with_addresses, words_of

QUIET = b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0,NATS://127.0.0.1:0"}
    with KaldaProcess(tmp_path_factory.mktemp("kalda") / "data", settings=settings) as process:
        yield nats_port(process)


def command(port: int, *words: str) -> list[str]:
    return [sys.executable, "-m", "kalda", *words, "--server", f"127.0.0.1:{port}", "--timeout-ms", "60000"]


def run(port: int, *words: str, stdin: str = "") -> tuple[int, str, str]:
    found = forked_commands.run(
        command(port, *words), input=stdin, capture_output=True, text=True, timeout=100
    )
    return found.returncode, found.stdout, found.stderr


def test_what_one_publishes_the_other_prints(port: int) -> None:
    arguments = command(port, "nats", "sub", "orders.*", "--count", "2", "--json")
    with forked_commands.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as subscriber:
        with RawClient(port) as client:
            # Until the command has subscribed: each try is answered by 503 or delivered.
            first = QUIET + b"SUB _R 1\r\n"
            while client.ask(first, b"PUB orders.ready _R 0\r\n\r\n"):
                first = b""
        assert (0, "", "") == run(port, "nats", "pub", "orders.eu", "-H", "Trace: a1", stdin="17 boxes")
        output, errors = subscriber.communicate(timeout=100)
    assert (0, "") == (subscriber.returncode, errors)
    last = json.loads(output.splitlines()[1])
    expected = {"subject": "orders.eu", "reply": None, "headers": [["Trace", "a1"]], "payload": "17 boxes"}
    assert expected == last


def test_request_is_answered(port: int) -> None:
    with RawClient(port) as client:
        client.ask(QUIET, b"SUB price 1\r\n")
        arguments = command(port, "nats", "req", "price", "boxes")
        with forked_commands.Popen(arguments, stdout=subprocess.PIPE, text=True) as asking:
            request = b""
            while not request.startswith(b"MSG price 1 "):
                request = client.ask()
            reply = request.split()[3]
            client.ask(b"PUB %b 5\r\n4 EUR\r\n" % reply)
            output, _ = asking.communicate(timeout=100)
    assert (0, f"{reply.decode()}\t4 EUR\n") == (asking.returncode, output)


def test_errors_say_what_is_wrong(port: int) -> None:
    code, _, error = run(port, "nats", "req", "nobody", "x")
    assert (1, True) == (code, "nobody subscribes to nobody" in error)
    for words in (
        ("pub", "a.*", "x"),
        ("sub", "a..b"),
        ("pub", "a b", "x"),
        ("pub", "a", "x", "-H", "x\ny:z"),
    ):
        assert 2 == run(port, "nats", *words)[0]
    code, _, error = run(1, "nats", "pub", "a", "x")
    assert (1, True) == (code, "127.0.0.1:1 cannot be reached" in error)


@contextmanager
def running(line: str) -> "Iterator[subprocess.Popen[str]]":
    """An example that goes on; it is ended if it has not."""
    process = forked_commands.Popen([*KALDA, *words_of(line)[0]], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=100)


def test_the_examples_run(port: int, tmp_path: Path) -> None:
    printed = "127.0.0.1:4222"
    (pub,), (sub, queue), (req,) = (EXAMPLES[f"nats {name}"] for name in ("pub", "sub", "req"))
    here = f" --server 127.0.0.1:{port}"
    with running(sub + here) as process, RawClient(port) as client:
        first = QUIET + b"SUB _R 1\r\n"
        while client.ask(first, b"PUB orders.ready _R 0\r\n\r\n"):
            first = b""
        assert 0 == run_line(pub + here, tmp_path, {}).returncode
        assert process.stdout is not None
        assert ["orders.ready\t\n", "orders.eu.new\t17 boxes\n"] == [
            process.stdout.readline() for _ in range(2)
        ]
    with running(queue + here) as process, RawClient(port) as client:
        first = QUIET + b"SUB _R 1\r\n"
        while client.ask(first, b"PUB jobs _R 0\r\n\r\n"):
            first = b""
        client.ask(b"PUB jobs 0\r\n\r\n" * 9)
        assert 0 == process.wait(100)
    with RawClient(port) as client:
        client.ask(QUIET, b"SUB prices.boxes 1\r\n")
        with running(with_addresses(req, {printed: f"127.0.0.1:{port}"})) as process:
            while not (request := client.ask()).startswith(b"MSG "):
                pass
            client.ask(b"PUB %b 5\r\n4 EUR\r\n" % request.split()[3])
            assert 0 == process.wait(100)
