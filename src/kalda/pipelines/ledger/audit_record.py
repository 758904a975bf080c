"""Defines the record of the ledger and its form in the topic `__kalda_audit`.

A record holds an account that a batch's tasks counted, and adds which pipeline and target it belongs to. It
computes none of the numbers. The key names query, batch and partition, so that a batch which is completed
after a crash replaces its own records and adds none.
"""

import json
from dataclasses import dataclass
from typing import Final

from kalda.common.types import TopicPartition
from kalda.pipelines.accounts import AccountError, BatchAccount, RangeAccount
from kalda.records.crc import crc32c

LEDGER_TOPIC: Final = "__kalda_audit"


class LedgerRecordError(ValueError):
    """A record of the ledger's topic is damaged or was not written by a pipeline."""


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """What became of the offsets of one partition in one batch of one pipeline."""

    pipeline: str
    target: str
    """The table or the topic that the pipeline writes."""
    query_id: str
    batch_id: int
    account: RangeAccount
    committed_ms: int
    """When the batch was committed, in milliseconds since the epoch."""

    @property
    def key(self) -> bytes:
        """The key in the topic: the same for each attempt of a batch."""
        place = self.account.topic_partition
        return f"{self.query_id}/{self.batch_id}/{place.topic}-{place.partition}".encode()

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that was read."""
        return self.account.topic_partition

    def to_json(self) -> bytes:
        """Return the value in the topic: one JSON document with a checksum over its numbers."""
        document: dict[str, object] = {
            "pipeline": self.pipeline,
            "target": self.target,
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "committed_ms": self.committed_ms,
            **self.account.to_json(),
            "crc": offsets_crc(self.account),
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, value: bytes) -> "LedgerRecord":
        """Read what `to_json` wrote.

        Raises:
            LedgerRecordError: the value is something else, its checksum differs, or it does not balance.
        """
        try:
            document = json.loads(value)
            account = RangeAccount.from_json(document)
            record = cls(
                pipeline=str(document["pipeline"]),
                target=str(document["target"]),
                query_id=str(document["query_id"]),
                batch_id=int(document["batch_id"]),
                account=account,
                committed_ms=int(document["committed_ms"]),
            )
            crc = document["crc"]
        except AccountError as error:
            raise LedgerRecordError(f"the ledger has a record that does not balance: {error}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LedgerRecordError(f"this is no record of the ledger: {value[:200]!r}") from error
        if crc != offsets_crc(account):
            raise LedgerRecordError(
                f"the checksum of {account.place} in batch {record.batch_id} is {crc}, and its numbers give "
                f"{offsets_crc(account)}: the record was changed"
            )
        return record


def offsets_crc(account: RangeAccount) -> int:
    """Return CRC-32C of a range's place and counts, so that a changed record is found."""
    counts = (account.records, account.rows_out, account.dlq, account.filtered, account.gaps, account.late)
    numbers = ",".join(map(str, (account.start, account.end, *counts)))
    text = f"{account.topic}-{account.partition}:{numbers}"
    return crc32c(text.encode())


def records_of(pipeline: str, target: str, batch: BatchAccount, committed_ms: int) -> list[LedgerRecord]:
    """Return the records of a batch, one for each partition that it read."""
    assert committed_ms >= 0, f"committed at {committed_ms}"
    return [
        LedgerRecord(pipeline, target, batch.query_id, batch.batch_id, account, committed_ms)
        for account in batch.ranges
    ]
