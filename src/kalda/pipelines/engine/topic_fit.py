"""Turns rows into records of a topic, and finds the rows of which there is none that the topic takes.

What a maintainer must not break: a record is refused only if its topic refuses it alone, whatever other
records it is sent with; else the batch would lose records that could be written.
"""

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

ENCODE_FAILED: Final = "EncodeFailed"
RECORD_TOO_LARGE: Final = "RecordTooLarge"
RECORD_REFUSED: Final = "RecordRefused"

_RECORD_OVERHEAD: Final = 61 + 26
"""Bytes of a record batch's header, and at most of the numbers beside the texts of a record."""


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """What a topic takes; None where it is not known.

    Attributes:
        record_bytes_max: Of a record that is not compressed, alone in its batch.
        partition_count: The number of partitions.
        needs_key: Whether the topic is compacted.
    """

    record_bytes_max: int | None = None
    partition_count: int | None = None
    needs_key: bool = False


@dataclass(frozen=True, slots=True)
class TopicFit:
    """How rows become records that the topic takes; picklable."""

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


def read_limits(name: str, cluster: Cluster, producer: Mapping[str, str]) -> TopicLimits:
    """Ask the cluster what a topic takes; a cluster that does not say leaves it to the broker.

    Args:
        producer: the settings of the producers, by Kafka's names.
    """
    request_max = int(producer.get("max.request.size", _REQUEST_BYTES_MAX))
    try:
        with Admin.from_config({**cluster.properties, "client.id": _CLIENT_ID}) as admin:
            topic = ConfigResource.topic(name)
            described = admin.describe_topics([name])
            entries = admin.describe_configs([topic]).results.get(topic, {})
    except ClientError:
        return TopicLimits(request_max)
    settings = {key: entry.value or "" for key, entry in entries.items()}
    is_compressed = producer.get("compression.type", "none") != "none"
    topic_max = settings.get("max.message.bytes", "")
    # A compressed record may be smaller than it is here, so that only the producer's limit is certain.
    known = [request_max] + ([int(topic_max)] if topic_max and not is_compressed else [])
    found = next(iter(described.results.values()), None)
    return TopicLimits(
        min(known),
        None if found is None else len(found.partitions),
        "compact" in settings.get("cleanup.policy", "").split(","),
    )


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
