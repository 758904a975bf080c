"""Clients that send nonsense: the server answers or cuts them off, and serves everybody else."""

import asyncio
import random
from pathlib import Path

import pytest

from kalda.zk.proto.framing import frame
from kalda.zk.proto.op_codes import OpCode
from tests.integration.zk.wire import Bench, Client, running

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
        async with asyncio.timeout(20):
            while len(bench.listener.connections) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await good.exists("/good")
        assert bench.listener.outstanding == 0
        assert len(bench.server.server.watches) == 0
        faults = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert faults == []
