"""The same bytes get the same answers from nats-server and from Kalda.

Where nats-server closes a connection without a word, Kalda says why; those answers are listed with both.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda.testing import KaldaProcess
from tests.integration.nats.raw_nats import ENDED, answers, nats_port

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}\r\n'
MINE = QUIET.replace(b"{", b'{"echo":false,')

SCRIPTS = [
    b"SUB a 1\r\nPUB a 2\r\nhi\r\n",
    b"sub a 1\r\npub\ta  \t2\nhi\r\nping\n",
    b"PING\r\nPONG\r\n+OK\r\nINFO {}\r\n",
    b"FOO\r\n",
    b"GET / HTTP/1.1\r\n",
    b"\r\n",
    b"MSG a 1 2\r\nhi\r\n",
    b"-ERR 'x'\r\n",
    b'CONNECT {"protocol":7}\r\n',
    b'CONNECT {"no_responders":true}\r\n',
    b'CONNECT {"account":"x"}\r\n',
    b'CONNECT {"pedantic":true,"verbose":true}\r\nSUB a.* 1\r\nPUB a.* 1\r\nx\r\nUNSUB 77\r\n',
    QUIET + b"UNSUB\r\n",
    QUIET + b"UNSUB 1 x\r\n",
    QUIET + b"SUB a 1\r\nUNSUB 1 x\r\nPUB a 0\r\n\r\n",
    QUIET + b"PUB a 2\r\nhiXX\r\n",
    QUIET + b"PUB a 2000000\r\n",
    QUIET + b"SUB " + b"a" * 5000 + b" 1\r\n",
    QUIET + b"SUB a..b 1\r\n",
    QUIET + b"SUB a.>.b 1\r\nSUB a*.b 2\r\nPUB a*.b 1\r\nx\r\nPUB a..b 1\r\nx\r\n",
    QUIET + b"SUB a.> 1\r\nPUB a 1\r\nx\r\nPUB a.b 1\r\ny\r\nPUB a.* 1\r\nz\r\n",
    QUIET + b"SUB a 1\r\nSUB b 1\r\nPUB a 0\r\n\r\nPUB b 0\r\n\r\n",
    QUIET + b"SUB a 1\r\nUNSUB 1 2\r\n" + b"PUB a 1\r\nx\r\n" * 3,
    QUIET + b"SUB a 1\r\nPUB a 0\r\n\r\nUNSUB 1 1\r\nPUB a 0\r\n\r\n",
    QUIET + b"SUB a q 4\r\nSUB a q 5\r\nUNSUB 4\r\nPUB a 1\r\nx\r\n",
    QUIET + b"PUB nobody _R 0\r\n\r\nSUB _R 1\r\nPUB nobody _R 0\r\n\r\n",
    QUIET + b"SUB _R.> 1\r\nPUB $JS.API.INFO _R.1 0\r\n\r\n",
    MINE + b"SUB a 1\r\nSUB _R 2\r\nPUB a _R 1\r\nx\r\n",
    QUIET + b"SUB a 1\r\nHPUB a r 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n",
    b'CONNECT {"verbose":true,"echo":true}\r\nSUB a 1\r\nUNSUB 1\r\n',
]

SILENT_THERE = [
    b"CONNECT {bad\r\n",
    b"CONNECT []\r\n",
    b"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
    QUIET + b"PUB a\r\n",
    QUIET + b"PUB a x\r\n",
    QUIET + b"SUB a b c d\r\n",
]


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    program = shutil.which("nats-server")
    if program is None:
        pytest.skip("there is no nats-server")
    log: Path = tmp_path_factory.mktemp("nats-server") / "log"
    with log.open("wb") as out:
        command = [program, "--addr", "127.0.0.1", "--port", "-1"]
        process = subprocess.Popen(command, stderr=out)
    try:
        while not (found := re.search(r"client connections on 127.0.0.1:(\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
        yield int(found[1])
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def kalda_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0,NATS://127.0.0.1:0"}
    with KaldaProcess(tmp_path_factory.mktemp("kalda") / "data", settings=settings) as process:
        yield nats_port(process)


def test_answers_are_equal(nats_server: int, kalda_port: int) -> None:
    expected, found = (
        dict(zip(SCRIPTS, answers(port, SCRIPTS), strict=True)) for port in (nats_server, kalda_port)
    )
    assert expected == found


def test_kalda_says_why_where_nats_server_does_not(nats_server: int, kalda_port: int) -> None:
    assert [ENDED] * len(SILENT_THERE) == answers(nats_server, SILENT_THERE)
    for answer in answers(kalda_port, SILENT_THERE):
        assert re.fullmatch(rb"-ERR '(Parser Error|message headers not supported)'\r\n<end>", answer)
