"""Clients that send nonsense: the server answers or cuts them off, and serves everybody else."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kalda.common.log_limiter import LIMIT_BURST
from kalda.zookeeper.protocol.op_codes import MARSHALLING_ERROR, OpCode
from kalda.zookeeper.protocol.requests import AuthRequest
from tests.integration.zookeeper.wire import Bench, Client, Session, running
from tests.zookeeper_requests import frame

PATHS = (b"/", b"/good", b"/good/a", b"/zookeeper", b"", b"x", b"/a\0b", b"/\xed\xa0\x80", b"//", b"/..")
NUMBERS = [*map(int, OpCode), 0, 20, 999, -10]
CLIENTS = 120


def nonsense(random_: random.Random) -> bytes:
    """A request with a header and perhaps a path that are right, and the rest as it falls."""
    header = random_.randrange(-10, 100).to_bytes(4, "big", signed=True)
    header += random_.choice(NUMBERS).to_bytes(4, "big", signed=True)
    path = random_.choice(PATHS)
    return random_.choice(
        (
            random_.randbytes(random_.randrange(60)),
            header + random_.randbytes(random_.randrange(60)),
            header + len(path).to_bytes(4, "big") + path + random_.choice((b"", b"\0" * 40, b"\1" * 40)),
            header + len(path).to_bytes(4, "big") + path + random_.randbytes(40),
        )
    )


async def molest(bench: Bench, random_: random.Random) -> None:
    client: Client = await bench.dial()
    if random_.random() < 0.25:
        client.writer.write(random_.randbytes(random_.randrange(1, 40)))
    else:
        await client.open(60_000)
        for _ in range(random_.randrange(1, 12)):
            client.writer.write(frame(nonsense(random_)))
    if random_.random() < 0.5:
        await asyncio.sleep(0)
    client.close()


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_nonsense_hurts_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    random_ = random.Random(seed)
    async with running(tmp_path, forceSync="no", maxClientCnxns="0", words="*") as bench:
        good = await bench.connect(60_000)
        await good.create("/good")
        for _ in range(CLIENTS):
            await molest(bench, random_)
        async with asyncio.timeout(60):
            while len(bench.listener.registry.connections) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await good.exists("/good")
        assert 0 == bench.listener.registry.outstanding
        assert 0 == len(bench.server.server.watches)
        faults = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert [] == faults


GET_DATA_CUT_SHORT = b"\0\0\0\1" + b"\0\0\0\4" + b"\0\0\3\xe8" + b"/a"
UNKNOWN_SCHEME = AuthRequest(0, "kerberos", b"me")


async def send_malformed_requests(bench: Bench) -> None:
    client = await bench.connect(60_000)
    client.writer.write(frame(GET_DATA_CUT_SHORT) * 200)
    replies = [await client.next_reply() for _ in range(200)]
    assert {MARSHALLING_ERROR} == {reply.error for reply in replies}


async def send_negative_frames(bench: Bench) -> None:
    for _ in range(50):
        client = await bench.dial()
        client.writer.write(b"\xff\xff\xff\xfb")
        await client.reader.read()
        client.close()


async def send_wrong_passwords(bench: Bench) -> None:
    other = Session(60_000, 0x1234, b"", False)
    for _ in range(50):
        client = await bench.dial()
        refused = await client.open(60_000, session=other, password=b"x" * 16)
        assert 0 == refused.id
        client.close()


async def send_unknown_schemes(bench: Bench) -> None:
    for _ in range(50):
        client = await bench.connect(60_000)
        client.send(OpCode.AUTH, UNKNOWN_SCHEME, xid=-4)
        await client.reader.read()
        client.close()


@pytest.mark.parametrize(
    "flood", [send_malformed_requests, send_negative_frames, send_wrong_passwords, send_unknown_schemes]
)
async def test_flood_of_nonsense_leaves_few_log_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, flood: Callable[[Bench], Awaitable[None]]
) -> None:
    """One client without credentials could otherwise fill the disk, at 3 MB of log each second."""
    with caplog.at_level(logging.INFO):
        async with running(tmp_path, forceSync="no", maxClientCnxns="0") as bench:
            await flood(bench)
    lines = [record.getMessage() for record in caplog.records if "127.0.0.1" in record.getMessage()]
    assert 0 < len(lines) <= 2 * LIMIT_BURST


async def test_client_of_another_protocol_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, forceSync="no") as bench:
        for start in (b"\x16\x03\x01\x02\0\1", b"GET / HTTP/1.1\r\n\r\n") * 3:
            client = await bench.dial()
            client.writer.write(start)
            assert b"" == await client.reader.read()
            client.close()
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert 2 == len(lines)
    assert "sent a TLS ClientHello to the ZooKeeper port" in lines[0]
    assert "sent an HTTP request to the ZooKeeper port" in lines[1]
