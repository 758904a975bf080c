"""Clients in other languages behind the face of the Python ones.

Each is a small program that reads one command as JSON on stdin and prints one result as JSON, or a message
on stderr with a non-zero exit code; `go/internal/command` says which fields a command has.
"""

import base64
import contextlib
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kalda import Consumer
from kalda.clients.errors import ClientError
from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.common.types import TopicPartition
from kalda.records.columnar import decode_batches
from kalda.testing import KaldaProcess
from tests.integration.clients.clients import ConfluentClient, Message

NODE = Path(__file__).parent / "node"

PROGRAM_TIMEOUT_SECONDS = 60
"""Above the programs' own 40 s, so that the message of a hang comes from the program that knows more."""


class ProgramError(Exception):
    """The program ended with a failure; the message is what it wrote to stderr."""


class ProgramClient:
    """A client of the tests (see `tests.integration.clients`) that runs as a program for each call."""

    def __init__(
        self, name: str, arguments: Sequence[str | Path], bootstrap: str, settings: Mapping[str, Any]
    ) -> None:
        self.name = name
        self._arguments = list(arguments)
        self._fields = {"bootstrap": bootstrap, **settings}

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        idempotent: bool = True,
        pause_ms: int = 0,
    ) -> list[int] | None:
        """Produce to partition 0, with a pause after every 50 messages if one is given.

        The offsets are returned, or None from clients that do not tell them.
        """
        result = self.run(
            "produce",
            topic=topic,
            codec=codec,
            idempotent=idempotent,
            pause_ms=pause_ms,
            messages=[_to_json(message) for message in messages],
        )
        offsets: list[int] | None = result.get("offsets")
        return offsets

    def consume(
        self, topic: str, count: int, *, offset: int = 0, timestamp_ms: int | None = None
    ) -> list[Message]:
        """Read `count` messages of partition 0 from the offset, or from the time if one is given."""
        start = {"offset": offset} if timestamp_ms is None else {"timestamp_ms": timestamp_ms}
        result = self.run("consume", topic=topic, count=count, **start)
        return [_from_json(entry) for entry in result["messages"]]

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int:
        """Offset of the first record of partition 0 at or after the time; -1 if there is none."""
        return int(self.run("offset_for_time", topic=topic, timestamp_ms=timestamp_ms)["offset"])

    def run(self, verb: str, **fields: Any) -> dict[str, Any]:
        """Perform one verb and return its result.

        Raises:
            ProgramError: the program failed.
        """
        done = subprocess.run(
            self._arguments,
            input=json.dumps({"verb": verb, **self._fields, **fields}),
            capture_output=True,
            text=True,
            timeout=PROGRAM_TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise ProgramError(f"{self.name}: {done.stderr.strip() or 'no message'}")
        result: dict[str, Any] = json.loads(done.stdout)
        return result


def kafkajs_client(node_modules: Path, bootstrap: str) -> ProgramClient:
    arguments: list[str | Path] = ["env", f"NODE_PATH={node_modules}", "node", NODE / "kafkajs.js"]
    return ProgramClient("kafkajs", arguments, bootstrap, {})


def read_by_columns(bootstrap: str, topic: str, count: int) -> list[Message]:
    """Read partition 0 as the Spark source does: its own fetch, and the columnar decoder.

    Other languages compress with libraries of their own (snappy with and without frames, zstd frames with
    and without their size), and a decoder must know them all.
    """
    found: list[Message] = []
    config = LogReaderConfig.from_options({"bootstrap_servers": bootstrap})
    with (
        LogReader(config) as reader,
        reader.fetcher(TopicPartition(topic, 0), start=0, end=count) as fetcher,
    ):
        while fetcher.position < count:
            start = fetcher.position
            batch = decode_batches(fetcher.next().records, start_offset=start, want_headers=True)
            for row in batch.to_record_batch().to_pylist():
                headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
                timestamp_ms = round(row["timestamp"].timestamp() * 1000)
                found.append(Message(row["key"], row["value"], headers, timestamp_ms, row["offset"]))
    return found


def produce_over_a_crash(client: ProgramClient, kalda: KaldaProcess) -> None:
    """Kill the broker twice while the client produces; every message must be there once, in order."""
    now_ms = int(time.time() * 1000)
    messages = [Message(b"%d" % number, b"v" * 100, (), now_ms) for number in range(5000)]
    with ThreadPoolExecutor(1) as pool:
        produced = pool.submit(client.produce, "over-a-crash", messages, pause_ms=30)
        for written in (1000, 2000):
            wait_written(kalda.bootstrap, "over-a-crash", written, produced)
            assert not produced.done(), produced.result()
            kalda.kill()
            kalda.start()
        assert list(range(5000)) == produced.result()

    assert messages == ConfluentClient(kalda.bootstrap).consume("over-a-crash", 5000)


def wait_written(bootstrap: str, topic: str, count: int, produced: "Future[list[int] | None]") -> None:
    """Wait until partition 0 has `count` records, or the producer has ended."""
    partition = TopicPartition(topic, 0)
    deadline = time.monotonic() + PROGRAM_TIMEOUT_SECONDS
    with Consumer(bootstrap_servers=bootstrap, allow_auto_create_topics=False) as consumer:
        while not produced.done():
            # A client that creates its topic needs a moment for it.
            with contextlib.suppress(ClientError):
                if consumer.end_offsets([partition], timeout_s=1.0)[partition] >= count:
                    return
            assert time.monotonic() < deadline, f"no {count} records in {topic}"
            time.sleep(0.02)


def _to_json(message: Message) -> dict[str, Any]:
    return {
        "key": _encoded(message.key),
        "value": _encoded(message.value),
        "headers": [{"name": name, "value": _encoded(value)} for name, value in message.headers],
        "timestamp_ms": message.timestamp_ms,
    }


def _from_json(entry: Mapping[str, Any]) -> Message:
    return Message(
        _decoded(entry["key"]),
        _decoded(entry["value"]),
        tuple((header["name"], _decoded(header["value"])) for header in entry["headers"] or ()),
        entry["timestamp_ms"],
        entry["offset"],
    )


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
