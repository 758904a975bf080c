"""The clients that users have, behind one small face, so that each test says what holds for all of them.

Nothing here is a Kalda client: confluent-kafka (librdkafka), kafka-python, aiokafka and kcat, each
used by its public API with as few settings as a user would give.
"""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka

TIMEOUT_SECONDS = 60.0
REQUEST_BYTES_MAX = 15_000_000


@dataclass(frozen=True, slots=True)
class Message:
    """A record as a user sees it. `offset` is -1 and `timestamp_ms` is 0 before it is produced."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0
    offset: int = field(default=-1, compare=False)


class Client(Protocol):
    """What the tests need from a client, by explicit partition and without a consumer group."""

    name: str

    def produce(self, topic: str, messages: Sequence[Message], *, codec: str = "none") -> None:
        """Produce to partition 0 and return when everything is acknowledged."""

    def consume(self, topic: str, count: int, *, offset: int = 0) -> list[Message]:
        """Read `count` messages of partition 0, from `offset`, by assignment."""

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int:
        """Offset of the first record of partition 0 at or after the time; -1 if there is none."""


def old_librdkafka(version: str) -> dict[str, object]:
    """Return the settings of a client that asks brokers for no versions."""
    return {
        "api.version.request": False,
        "broker.version.fallback": version,
        # A warning for each of the two settings above, which are deprecated.
        "log_level": 3,
    }


class ConfluentClient:
    """librdkafka, as a client of a release that has no ApiVersions if `version` is given."""

    name = "confluent-kafka"

    def __init__(
        self, bootstrap: str, *, version: str | None = None, security: Mapping[str, str] | None = None
    ) -> None:
        self._settings: dict[str, object] = {"bootstrap.servers": bootstrap, **(security or {})}
        if version is not None:
            self._settings |= old_librdkafka(version)
        self._is_idempotent = version is None

    def produce(self, topic: str, messages: Sequence[Message], *, codec: str = "none") -> None:
        producer = confluent_kafka.Producer(
            {
                **self._settings,
                "compression.type": codec,
                "enable.idempotence": self._is_idempotent,
                "message.max.bytes": REQUEST_BYTES_MAX,
                "linger.ms": 20,
            }
        )
        errors: list[object] = []

        def delivered(error: object, message: object) -> None:
            if error is not None:
                errors.append(error)

        for message in messages:
            producer.produce(
                topic,
                partition=0,
                key=message.key,
                value=message.value,
                headers=list(message.headers),
                timestamp=message.timestamp_ms,
                on_delivery=delivered,
            )
        assert 0 == producer.flush(TIMEOUT_SECONDS)
        assert [] == errors

    def _consumer(self) -> Any:
        return confluent_kafka.Consumer(
            {
                **self._settings,
                "group.id": "unused",
                "enable.auto.commit": False,
                "fetch.message.max.bytes": REQUEST_BYTES_MAX,
                "receive.message.max.bytes": 100_000_000,
                "check.crcs": True,
            }
        )

    def consume(self, topic: str, count: int, *, offset: int = 0) -> list[Message]:
        consumer = self._consumer()
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, offset)])
            found: list[Message] = []
            while len(found) < count:
                batch = consumer.consume(count - len(found), timeout=TIMEOUT_SECONDS)
                assert batch, f"only {len(found)} of {count} messages arrived"
                for message in batch:
                    assert message.error() is None, message.error()
                    found.append(
                        Message(
                            message.key(),
                            message.value(),
                            tuple(message.headers() or ()),
                            message.timestamp()[1],
                            message.offset(),
                        )
                    )
            return found
        finally:
            consumer.close()

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int:
        consumer = self._consumer()
        try:
            wanted = confluent_kafka.TopicPartition(topic, 0, timestamp_ms)
            [answer] = consumer.offsets_for_times([wanted], timeout=TIMEOUT_SECONDS)
            assert answer.error is None
            # librdkafka turns "no such record" into OFFSET_END (-1).
            return int(answer.offset)
        finally:
            consumer.close()


class KafkaPythonClient:
    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def produce(self, topic: str, messages: Sequence[Message], *, codec: str = "none") -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=None if codec == "none" else codec,
            max_request_size=REQUEST_BYTES_MAX,
            linger_ms=20,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    partition=0,
                    key=message.key,
                    value=message.value,
                    headers=list(message.headers),
                    timestamp_ms=message.timestamp_ms or None,
                )
                for message in messages
            ]
            producer.flush(TIMEOUT_SECONDS)
            for future in futures:
                future.get(TIMEOUT_SECONDS)
        finally:
            producer.close(TIMEOUT_SECONDS)

    def _consumer(self) -> Any:
        return kafka.KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=None,
            enable_auto_commit=False,
            max_partition_fetch_bytes=REQUEST_BYTES_MAX,
            check_crcs=True,
        )

    def consume(self, topic: str, count: int, *, offset: int = 0) -> list[Message]:
        consumer = self._consumer()
        try:
            partition = kafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, offset)
            found: list[Message] = []
            while len(found) < count:
                batches = consumer.poll(
                    timeout_ms=int(TIMEOUT_SECONDS * 1000), max_records=count - len(found)
                )
                assert batches, f"only {len(found)} of {count} messages arrived"
                found += [
                    Message(record.key, record.value, tuple(record.headers), record.timestamp, record.offset)
                    for records in batches.values()
                    for record in records
                ]
            return found
        finally:
            consumer.close()

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int:
        consumer = self._consumer()
        try:
            partition = kafka.TopicPartition(topic, 0)
            answer = consumer.offsets_for_times({partition: timestamp_ms})[partition]
            return -1 if answer is None else int(answer.offset)
        finally:
            consumer.close()


class AiokafkaClient:
    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def produce(self, topic: str, messages: Sequence[Message], *, codec: str = "none") -> None:
        async def run() -> None:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                compression_type=None if codec == "none" else codec,
                max_request_size=REQUEST_BYTES_MAX,
                max_batch_size=REQUEST_BYTES_MAX,
                enable_idempotence=True,
                linger_ms=20,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        partition=0,
                        key=message.key,
                        value=message.value,
                        headers=list(message.headers),
                        timestamp_ms=message.timestamp_ms or None,
                    )
                    for message in messages
                ]
                await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_SECONDS)
            finally:
                await producer.stop()

        asyncio.run(run())

    def consume(self, topic: str, count: int, *, offset: int = 0) -> list[Message]:
        async def run() -> list[Message]:
            consumer = self._consumer()
            await consumer.start()
            try:
                partition = aiokafka.TopicPartition(topic, 0)
                consumer.assign([partition])
                consumer.seek(partition, offset)
                found = [await asyncio.wait_for(consumer.getone(), TIMEOUT_SECONDS) for _ in range(count)]
                return [
                    Message(record.key, record.value, tuple(record.headers), record.timestamp, record.offset)
                    for record in found
                ]
            finally:
                await consumer.stop()

        return asyncio.run(run())

    def _consumer(self) -> Any:
        return aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=None,
            enable_auto_commit=False,
            max_partition_fetch_bytes=REQUEST_BYTES_MAX,
        )

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int:
        async def run() -> int:
            consumer = self._consumer()
            await consumer.start()
            try:
                partition = aiokafka.TopicPartition(topic, 0)
                consumer.assign([partition])
                answer = (await consumer.offsets_for_times({partition: timestamp_ms}))[partition]
                return -1 if answer is None else int(answer.offset)
            finally:
                await consumer.stop()

        return asyncio.run(run())


class KcatClient:
    """The kcat program; it gives every message of one call the same headers and the current time."""

    name = "kcat"
    _KEY_END = "\x1f"
    _MESSAGE_END = "\x1e"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def produce(self, topic: str, messages: Sequence[Message], *, codec: str = "none") -> None:
        for headers in dict.fromkeys(message.headers for message in messages):
            same = [message for message in messages if message.headers == headers]
            arguments = ["-P", "-t", topic, "-p", "0", "-Z", "-K", self._KEY_END, "-D", self._MESSAGE_END]
            arguments += ["-z", codec, "-X", f"message.max.bytes={REQUEST_BYTES_MAX}"]
            for name, value in headers:
                arguments += ["-H", name if value is None else f"{name}={value.decode()}"]
            text = self._MESSAGE_END.join(
                (message.key or b"").decode() + self._KEY_END + (message.value or b"").decode()
                for message in same
            )
            self._run(arguments, text)

    def consume(self, topic: str, count: int, *, offset: int = 0) -> list[Message]:
        arguments = ["-C", "-t", topic, "-p", "0", "-o", str(offset), "-c", str(count), "-J", "-q"]
        arguments += ["-X", f"fetch.message.max.bytes={REQUEST_BYTES_MAX}"]
        arguments += ["-X", "receive.message.max.bytes=100000000", "-X", "check.crcs=true"]
        lines = self._run(arguments).splitlines()
        assert count == len(lines)
        return [self._message(json.loads(line)) for line in lines]

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int:
        answer = self._run(["-Q", "-t", f"{topic}:0:{timestamp_ms}"])
        return int(answer.split("offset ")[1])

    @staticmethod
    def _message(entry: dict[str, Any]) -> Message:
        flat = entry.get("headers", [])
        headers = tuple(
            (name, None if value is None else value.encode())
            for name, value in zip(flat[::2], flat[1::2], strict=True)
        )
        key, value = entry["key"], entry["payload"]
        return Message(
            None if key is None else key.encode(),
            None if value is None else value.encode(),
            headers,
            entry["ts"],
            entry["offset"],
        )

    def _run(self, arguments: Sequence[str], text: str = "") -> str:
        program = shutil.which("kcat")
        assert program is not None
        done = subprocess.run(
            [program, "-b", self._bootstrap, *arguments],
            input=text.encode(),
            capture_output=True,
            timeout=TIMEOUT_SECONDS * 2,
            check=False,
        )
        assert 0 == done.returncode, done.stderr.decode()
        return done.stdout.decode()


CLIENTS = {client.name: client for client in (ConfluentClient, KafkaPythonClient, AiokafkaClient, KcatClient)}
