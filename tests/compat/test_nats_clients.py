"""nats.js and the ``nats`` command get the same answers from nats-server and from Kalda.

Each walks through subjects, JetStream and key-value buckets. Times and ports are left out of the answers.
What differs is listed with both answers.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.apache_kafka import NotAvailableError
from tests.compat.conftest import installed_node_packages
from tests.compat.go_toolchain import nats_command
from tests.integration.nats.jetstream_servers import jetstream_broker, nats_server_port
from tests.integration.nats.raw_nats import nats_port

NODE = Path(__file__).parent / "nats_js"
WALK_SECONDS = 280

ERASES = "secure erase is not supported, a delete has to have no_erase"
DIFFERENCES_OF_NODE = {
    "purge": (
        # nats-server 2.9 counts deleted messages among those to keep; 2.15 answers as Kalda does.
        [[3, 3, 0], {"messages": 0, "first_seq": 7, "last_seq": 6}],
        [[3, 2, 1], {"messages": 0, "first_seq": 7, "last_seq": 6}],
    ),
    "a message is erased": (True, {"error": "JetStreamApiError", "code": 10057, "message": ERASES}),
}

COMMANDS = """
stream add orders --subjects orders.> --defaults
stream add orders --subjects other.> --defaults
stream add twice --subjects orders.a --defaults
stream ls -n
stream info orders --json
pub orders.a one -H k:v
pub orders.b two
pub orders.a three --jetstream
pub orders.a {{Count}} --count 3
request orders.a x
stream get orders 1
stream get orders --last-for orders.a
stream get orders 99
stream subjects orders
stream state orders --json
stream view orders 10
stream edit orders --max-msgs 100 -f
stream copy orders copied --subjects copied.>
stream report
stream find
consumer add orders c1 --pull --defaults
consumer ls orders -n
consumer info orders c1 --json
consumer next orders c1 --count 2 --ack
consumer next orders c1 --no-ack --raw
consumer next orders c1 --nak
consumer next orders c1 --term
consumer add orders c2 --target push.c2 --defaults --ack none
consumer ls orders -n
consumer edit orders c1 --ack 5s --defaults -f
consumer report orders
consumer rm orders c1 -f
consumer info orders c1
stream purge orders --subject orders.b -f
stream purge orders -f
stream rm orders -f
stream rm copied -f
stream info orders
kv add bucket --history 5
kv put bucket a 1
kv put bucket a 2
kv get bucket a --raw
kv create bucket a 3
kv update bucket a 3 2
kv update bucket a 4 2
kv history bucket a
kv ls bucket
kv ls
kv del bucket a -f
kv get bucket a
kv purge bucket a -f
kv compact bucket -f
kv info bucket
kv del bucket -f
kv info bucket
sub none --count 1 --timeout 1s
request none x
"""


VOLATILE = (
    (r"\d{4}-\d\d-\d\d[ T][\d:.]+( \+0000 UTC|Z)?", "TIME"),
    (r"\d\d:\d\d:\d\d", "TIME"),
    (r"\b(\d+[hm])*[\d.]+(ns|µs|ms|s)\b", "DURATION"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"_INBOX\.\w+(\.\w+)?", "INBOX"),
    # Go's cmp package prints either, by the hash of the program's name and arguments.
    ("\u00a0", " "),
    (r"[ \t]+", " "),
)


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Where nats-server is, and Kalda."""
    with (
        nats_server_port(tmp_path) as theirs,
        jetstream_broker(tmp_path / "data") as broker,
    ):
        yield theirs, nats_port(broker)


@pytest.mark.timeout(2 * WALK_SECONDS)
def test_node_client_gets_the_same_answers(ports: tuple[int, int]) -> None:
    modules = installed_node_packages(NODE, "compat-nats-js")
    program = modules.parent / "walk.js"
    program.write_text((NODE / "walk.js").read_text())
    theirs, ours = (_walk(program, port) for port in ports)
    assert len(theirs) > 80
    assert set(DIFFERENCES_OF_NODE) <= set(theirs)
    expected = theirs | {name: answers[1] for name, answers in DIFFERENCES_OF_NODE.items()}
    assert {name: answers[0] for name, answers in DIFFERENCES_OF_NODE.items()} == {
        name: theirs[name] for name in DIFFERENCES_OF_NODE
    }
    assert expected == ours


def _walk(program: Path, port: int) -> dict[str, object]:
    done = subprocess.run(
        ["node", str(program), f"127.0.0.1:{port}"], capture_output=True, text=True, timeout=WALK_SECONDS
    )
    assert (0, "") == (done.returncode, done.stderr)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {each["check"]: each["seen"] for each in lines}


@pytest.mark.timeout(900 + 2 * WALK_SECONDS)
def test_nats_command_gets_the_same_answers(ports: tuple[int, int], tmp_path: Path) -> None:
    try:
        program = nats_command()
    except NotAvailableError as error:
        pytest.skip(str(error))
    theirs, ours = (_answers(program, port, tmp_path) for port in ports)
    assert theirs == ours


def _answers(program: Path, port: int, home: Path) -> dict[str, tuple[int, str]]:
    answers: dict[str, tuple[int, str]] = {}
    for line in COMMANDS.strip().splitlines():
        done = subprocess.run(
            [str(program), "--server", f"nats://127.0.0.1:{port}", "--timeout", "20s", *line.split()],
            env={"HOME": str(home), "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        text = done.stdout
        for pattern, plain in VOLATILE:
            text = re.sub(pattern, plain, text)
        answers[f"{len(answers)} {line}"] = (done.returncode, text)
    return answers
