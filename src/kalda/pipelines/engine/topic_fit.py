"""Converts rows to records of a topic, and finds the rows whose records the topic would refuse.

A record is refused only if its topic refuses it alone, whatever other records it is sent with; otherwise the
batch would lose records that could be written.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.configs import ConfigResource
from kalda.clients.errors import ClientError
from kalda.formats.decoded import EncodeError
from kalda.pipelines.spec.model import Cluster
from kalda.pipelines.tables.fitting import Fitted, Misfit
from kalda.pipelines.topic_rows import TopicRows
from kalda.records.columnar_encode import encode_batches
from kalda.records.compression import Compression

ENCODE_FAILED: Final = "EncodeFailed"
RECORD_TOO_LARGE: Final = "RecordTooLarge"
RECORD_REFUSED: Final = "RecordRefused"

_RECORD_OVERHEAD: Final = 61 + 26
"""Bytes of a record batch's header, and at most of the numbers beside the texts of a record."""
_BEFORE: Final = "message.timestamp.before.max.ms"
_AFTER: Final = "message.timestamp.after.max.ms"
_DIFFERENCE: Final = "message.timestamp.difference.max.ms"
_UNBOUNDED: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """The limits of a topic; None where one is not known.

    Attributes:
        record_bytes_max: Of a record that is not compressed, alone in its batch.
        partition_count: The number of partitions.
        needs_key: Whether the topic is compacted.
        packed_bytes_max: Of a batch that is compressed with each of `codecs`.
        codecs: What the producer compresses with, and what the broker stores instead; empty for a producer
            that does not compress.
        before_max_ms: How far the timestamp of a record may be in the past.
        after_max_ms: How far it may be in the future.
    """

    record_bytes_max: int | None = None
    partition_count: int | None = None
    needs_key: bool = False
    packed_bytes_max: int | None = None
    codecs: tuple[Compression, ...] = ()
    before_max_ms: int | None = None
    after_max_ms: int | None = None

    def refused_times(self, times: pa.Array, now_ms: int) -> dict[int, str]:
        """Return why the topic does not take timestamps, by their place; null is the present time.

        Args:
            times: timestamps, or milliseconds since the epoch.
            now_ms: the present time in milliseconds since the epoch.
        """
        if pa.types.is_timestamp(times.type):
            times = times.cast(pa.timestamp("ms", times.type.tz), safe=False)
        elif not pa.types.is_integer(times.type):
            return {}
        found: dict[int, str] = {}
        least = 0 if self.before_max_ms is None else now_ms - self.before_max_ms
        greatest = _UNBOUNDED if self.after_max_ms is None else now_ms + self.after_max_ms
        numbers = times.cast(pa.int64())
        bad = pc.or_(pc.less(numbers, max(least, 0)), pc.greater(numbers, min(greatest, _UNBOUNDED)))
        for row in pc.indices_nonzero(pc.fill_null(bad, False)).to_pylist():
            number = numbers[row].as_py()
            if number < 0:
                found[row] = f"{number} ms is before 1970, and no record has such a timestamp"
            elif number < least:
                found[row] = f"{number} ms is older than `{_BEFORE}`={self.before_max_ms} allows"
            else:
                found[row] = f"{number} ms is later than `{_AFTER}`={self.after_max_ms} allows"
        return found

    def packed_bytes(self, record: pa.RecordBatch) -> int:
        """Return the bytes of one record, compressed as the topic gets and stores it, alone in its batch."""
        columns = {name: record.column(name) for name in record.schema.names}
        sizes = (
            len(batch)
            for codec in self.codecs
            for batch in encode_batches(
                columns.get("key"), columns["value"], 0, columns.get("headers"), compression=codec
            )
        )
        return max(sizes)


@dataclass(frozen=True, slots=True)
class TopicFit:
    """Converts rows to records that the topic accepts; picklable."""

    topic: str
    rows: TopicRows
    limits: TopicLimits

    def fit(self, rows: pa.RecordBatch) -> Fitted:
        """Return the records of the rows, and the rows without one that the topic takes."""
        failed: dict[int, Misfit] = {}
        records = self._encoded(rows, 0, failed)
        places = np.setdiff1d(np.arange(rows.num_rows), list(failed))
        for at, misfit in self._refused(records).items():
            failed[int(places[at])] = Misfit(int(places[at]), *misfit)
        if not failed:
            return Fitted(records)
        good = pa.array(np.isin(places, list(failed), invert=True))
        return Fitted(records.filter(good), tuple(failed[row] for row in sorted(failed)))

    def _encoded(self, rows: pa.RecordBatch, start: int, failed: dict[int, Misfit]) -> pa.RecordBatch:
        """Return the records of the rows that can be encoded; note the others by their place."""
        try:
            return self.rows.records(rows)
        except EncodeError as error:
            if rows.num_rows <= 1:
                failed[start] = Misfit(start, ENCODE_FAILED, str(error))
                return self.rows.records(rows.slice(0, 0))
        half = rows.num_rows // 2
        parts = (
            self._encoded(rows.slice(0, half), start, failed),
            self._encoded(rows.slice(half), start + half, failed),
        )
        return pa.concat_batches([part for part in parts if part.num_rows] or parts[:1])

    def _refused(self, records: pa.RecordBatch) -> dict[int, tuple[str, str]]:
        """Return the records that the topic does not take: class and message by place."""
        found: dict[int, tuple[str, str]] = {}
        names, limit = records.schema.names, self.limits.record_bytes_max
        if limit is not None:
            sizes = record_sizes(records)
            allowed = (
                f"the topic {self.topic} and the producer take {limit} (`max.message.bytes` of the topic, "
                "`max.request.size` in the `options` of `to`)"
            )
            for row in np.flatnonzero(sizes > limit).tolist():
                message = f"column value: the record has about {int(sizes[row])} bytes; {allowed}"
                found[row] = (RECORD_TOO_LARGE, message)
        found |= self._too_large_packed(records, found)
        if "timestamp" in names:
            times = records.column("timestamp")
            for row, why in self.limits.refused_times(times, time.time_ns() // 1_000_000).items():
                message = f"column timestamp: {why} in the topic {self.topic}"
                found.setdefault(row, (RECORD_REFUSED, message))
        if self.limits.needs_key:
            keys = records.column("key").is_null() if "key" in names else pa.repeat(True, records.num_rows)
            message = f"column key=None: the topic {self.topic} is compacted; a record needs a key"
            for row in pc.indices_nonzero(keys).to_pylist():
                found.setdefault(row, (RECORD_REFUSED, message))
        if "partition" in names:
            count = self.limits.partition_count
            for row, number in enumerate(records.column("partition").to_pylist()):
                if number is not None and (number < 0 or (count is not None and number >= count)):
                    message = f"column partition={number}: the topic {self.topic} has {count} partitions"
                    found.setdefault(row, (RECORD_REFUSED, message))
        return found

    def _too_large_packed(
        self, records: pa.RecordBatch, known: Mapping[int, object]
    ) -> dict[int, tuple[str, str]]:
        """Return the records that are too large even when they are compressed."""
        limit = self.limits.packed_bytes_max
        if limit is None:
            return {}
        found: dict[int, tuple[str, str]] = {}
        for row in np.flatnonzero(record_sizes(records) > limit).tolist():
            if row not in known and (size := self.limits.packed_bytes(records.slice(row, 1))) > limit:
                message = (
                    f"column value: the record has {size} bytes when it is compressed; the topic "
                    f"{self.topic} takes {limit} (`max.message.bytes`)"
                )
                found[row] = (RECORD_TOO_LARGE, message)
        return found


def read_limits(name: str, cluster: Cluster, producer: Mapping[str, str]) -> TopicLimits:
    """Ask the cluster what a topic takes; a cluster that does not say leaves it to the broker.

    Args:
        producer: the settings of the producers, by Kafka's names.
    """
    request_max = int(producer.get("max.request.size", _REQUEST_BYTES_MAX))
    try:
        with Admin.from_config({**cluster.properties, "client.id": _CLIENT_ID}) as admin:
            topic = ConfigResource.topic(name)
            described = admin.describe_topics([name], outcomes=True)
            entries = admin.describe_configs([topic], outcomes=True).results.get(topic, {})
    except ClientError:
        return TopicLimits(request_max)
    settings = {key: entry.value or "" for key, entry in entries.items()}
    topic_max = settings.get("max.message.bytes", "")
    codecs = _codecs(producer.get("compression.type", "none"), settings.get("compression.type", ""))
    known = [request_max] + ([int(topic_max)] if topic_max and Compression.NONE in codecs else [])
    found = next(iter(described.results.values()), None)
    is_created_time = settings.get("message.timestamp.type", "CreateTime") == "CreateTime"
    return TopicLimits(
        min(known),
        None if found is None else len(found.partitions),
        "compact" in settings.get("cleanup.policy", "").split(","),
        int(topic_max) if topic_max and Compression.NONE not in codecs else None,
        codecs,
        _time_bound(settings, _BEFORE) if is_created_time else None,
        _time_bound(settings, _AFTER) if is_created_time else None,
    )


def _codecs(producer: str, topic: str) -> tuple[Compression, ...]:
    """Return the codecs in which a record must be small enough: as it is sent, and as it is stored."""
    sent = Compression[producer.upper()]
    stored = {"producer": sent, "uncompressed": Compression.NONE}.get(topic)
    if stored is None:
        stored = Compression[topic.upper()] if topic.upper() in Compression.__members__ else sent
    return tuple(dict.fromkeys((sent, stored)))


def _time_bound(settings: Mapping[str, str], name: str) -> int | None:
    """Return a bound of timestamps in milliseconds; brokers before 3.6 have one setting for both."""
    for each in (name, _DIFFERENCE):
        value = settings.get(each, "")
        if value and int(value) < _UNBOUNDED:
            return int(value)
    return None


_REQUEST_BYTES_MAX: Final = 1_048_576
"""The default of `max.request.size`."""
_CLIENT_ID: Final = "kalda-pipeline-target"


def record_sizes(records: pa.RecordBatch) -> np.ndarray:
    """Return the bytes of each record, alone in its batch."""
    sizes = np.full(records.num_rows, _RECORD_OVERHEAD, dtype=np.int64)
    for name in ("key", "value"):
        if name in records.schema.names:
            sizes += pc.fill_null(pc.binary_length(records.column(name)), 0).to_numpy(zero_copy_only=False)
    if "headers" in records.schema.names:
        sizes += np.array(
            [_headers_size(each) for each in records.column("headers").to_pylist()], dtype=np.int64
        )
    return sizes


def _headers_size(headers: "list[dict[str, str | bytes | None]] | None") -> int:
    total = 0
    for each in headers or ():
        name, value = str(each["key"] or ""), each["value"]
        total += len(name.encode()) + (len(value) if value is not None else 0) + 10
    return total
