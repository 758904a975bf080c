"""Connects mapped subjects with their topics: writes published messages to a topic and delivers its records.

A message of a mapped subject is stored first and is delivered as the record that it has become, on each
broker with subscribers, as the records of other producers are. So it is written once and comes once.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Final

from kalda.broker.nats.topic_reader import TopicReader
from kalda.broker.nats.topic_writer import TopicWriter
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.metrics import Metrics
from kalda.common.types import TopicPartition
from kalda.nats.exchange import Exchange
from kalda.nats.operations import Operation, Publish, Subscribe
from kalda.nats.record_headers import RecordHeaders, RecordHeadersError, record_headers
from kalda.nats.subject_rules import SubjectRules
from kalda.nats.subjects import is_valid_literal

DRAIN_SECONDS: Final = 1.0
"""How long a shutdown waits until messages are written."""

_BAD_REQUEST: Final = (400, 10_003)
_NOT_FOUND: Final = (404, 10_059)
_TOO_LARGE: Final = (400, 10_054)
_FAILED: Final = (503, 10_077)
"""Status and code of the errors that JetStream has for messages that are not stored."""

_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _NOT_FOUND,
    ErrorCode.MESSAGE_TOO_LARGE: _TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE: _TOO_LARGE,
    ErrorCode.INVALID_RECORD: _BAD_REQUEST,
}


class MappedSubjects:
    """The mapped subjects of one broker: a `Store` of its clients' sessions."""

    def __init__(
        self,
        rules: SubjectRules,
        exchange: Exchange,
        writer: TopicWriter,
        reader: TopicReader,
    ) -> None:
        self._rules: Final = rules
        self._exchange: Final = exchange
        self._writer: Final = writer
        self._reader: Final = reader

    def keep(self, sent: Publish, publisher: object) -> bool:
        """Write a message to the topic of its subject, if it has one."""
        found = self._rules.to_topic(sent.subject)
        if found is None:
            return False

        def written(target: TopicPartition, offset: int, error: ApiError | None) -> None:
            self._answer(sent.reply, target, offset, error)

        key: bytes | None = None
        value: bytes | None = sent.payload
        headers: RecordHeaders = ()
        if sent.headers:
            try:
                key, is_tombstone, headers = record_headers(sent.headers)
            except RecordHeadersError as error:
                self._writer.counts.failures += 1
                written(TopicPartition(found.topic, -1), -1, ApiError(ErrorCode.INVALID_RECORD, str(error)))
                return True
            if is_tombstone and not sent.payload:
                value = None
        if found.has_key:
            key = found.key
        # Messages of one client to one subject stay in order.
        spread = b"%b %d" % (sent.subject, id(publisher))
        self._writer.add(found.topic, key, value, headers, spread, written)
        return True

    def _answer(self, reply: bytes, target: TopicPartition, offset: int, error: ApiError | None) -> None:
        if not reply or not is_valid_literal(reply):
            return
        if error is None:
            answer: dict[str, object] = {
                "stream": target.topic,
                "seq": offset + 1,
                "partition": target.partition,
                "offset": offset,
            }
        else:
            status, code = _ERRORS.get(error.code, _FAILED)
            answer = {
                "error": {"code": status, "err_code": code, "description": error.message},
                "stream": target.topic,
                "seq": 0,
            }
        self._exchange.publish(Publish(reply, b"", b"", json.dumps(answer).encode()), self)

    # For those who drive clients.

    def waits(self, operation: Operation, go_on: Callable[[], None]) -> bool:
        """Return whether a client must wait before its next operation; `go_on` is called when it need not."""
        if isinstance(operation, Publish):
            if self._writer.is_full:
                self._writer.when_free(go_on)
                return True
        elif (
            isinstance(operation, Subscribe)
            and self._rules.concerns(operation.subject)
            and self._reader.is_locating
        ):
            self._reader.when_located(go_on)
            return True
        return False

    def cluster_known(self) -> None:
        """Note that the broker has the cluster's metadata."""
        self._reader.cluster_known()

    async def run(self) -> None:
        """Write and read until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._writer.run(), name="NATS writes to topics")
            tasks.create_task(self._reader.run(), name="NATS reads topics")

    async def drain(self) -> None:
        """Wait a moment until all messages are written."""
        await self._writer.drain(DRAIN_SECONDS)

    def register_metrics(self, metrics: Metrics) -> None:
        """Register the counters of written, read and skipped records."""
        writer, reader = self._writer.counts, self._reader.counts
        for name, help_text, value in (
            ("stored_messages", "Messages of NATS written to topics.", lambda: writer.written),
            ("store_failures", "Messages of NATS that could not be written.", lambda: writer.failures),
            ("topic_messages", "Records of topics delivered to NATS clients.", lambda: reader.delivered),
            ("skipped_records", "Records that no message of NATS can carry.", lambda: reader.skipped),
        ):
            metrics.counter_function(f"kalda_nats_{name}", help_text, value)
