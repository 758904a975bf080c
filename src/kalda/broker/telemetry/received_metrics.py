"""Keeps the metrics that clients pushed until Prometheus reads them: `ReceivedMetrics`.

``org.apache.kafka.producer.record.send.rate`` of a client becomes

    kafka_client_producer_record_send_rate{client_id="app",client_instance_id="q3rN…",…} 12.5

Sums become counters: differences are added up here, because Prometheus reads totals. Names and labels come
from clients, so that everything is bounded: series of one client, series of all, lengths, labels of one
series. What exceeds a bound is left out and counted. A client's series go with the client.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from kalda.broker.config.client_metrics import (
    CLIENT_ID,
    CLIENT_INSTANCE_ID,
    CLIENT_SOFTWARE_NAME,
    CLIENT_SOFTWARE_VERSION,
)
from kalda.common.metrics import Family, Labels
from kalda.common.types import UUID
from kalda.protocol.otlp import Attributes, InvalidMetricsError, Point, decode_metrics
from kalda.records.compression import Compression, decompress, iter_decompressed
from kalda.records.errors import RecordsError

_OWN: Final = (CLIENT_ID, CLIENT_INSTANCE_ID, CLIENT_SOFTWARE_NAME, CLIENT_SOFTWARE_VERSION)
"""The labels that the broker knows by itself; nothing that a client pushes replaces them."""

DECOMPRESSED_RATIO_MAX: Final = 16
"""How many times `telemetry.max.bytes` a push may have when it is decompressed: text of metrics compresses to
a tenth."""

SERIES_OF_CLIENT_MAX: Final = 2_000
"""A consumer of 300 partitions that pushes all six metrics of each; with more it is cut short."""

PIECES_MAX: Final = 2_000
"""Members of gzip and blocks of snappy in one push, each of which costs some 5 us even if it is empty.
Blocks that Java writes have 32 KB."""

POINTS_MAX: Final = 2_000
"""Points of one push that are decoded, in some 35 ms, while no other client is served."""

LABELS_MAX: Final = 12
VALUE_LENGTH_MAX: Final = 128
NAME_LENGTH_MAX: Final = 160

_PREFIX: Final = "org.apache.kafka."
_TOTAL: Final = "_total"
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]+")


class Series:
    """The value of one metric of one client; calling it reads it, as the metrics registry does."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def __call__(self) -> float:
        """Return the value."""
        return self.value


class ReceivedMetrics:
    """The series of all clients, at most `series_max`."""

    def __init__(self, telemetry_max_bytes: int, series_max: int) -> None:
        self._size_max: Final = telemetry_max_bytes * DECOMPRESSED_RATIO_MAX
        self._series_max: Final = series_max
        self._families: Final[dict[str, Family]] = {}
        self._clients: Final[dict[UUID, dict[tuple[str, Labels], Series]]] = {}
        """Each client's series, by name and labels."""
        self.series_count = 0
        self.dropped = 0
        """Points that were left out because of a bound, or of their kind."""

    def receive(
        self,
        client_instance_id: UUID,
        attributes: Mapping[str, str],
        compression: Compression,
        metrics: bytes | memoryview,
    ) -> None:
        """Receive the metrics that a client pushed.

        Raises:
            InvalidMetricsError: it cannot be read; the points before the fault are kept.
        """
        try:
            data = _decompressed(compression, metrics, self._size_max)
        except RecordsError as error:
            raise InvalidMetricsError(str(error)) from None
        own = {name: attributes.get(name, "")[:VALUE_LENGTH_MAX] for name in _OWN}
        mine = self._clients.setdefault(client_instance_id, {})
        try:
            for count, (resource, point) in enumerate(decode_metrics(data)):
                if count == POINTS_MAX:
                    self.dropped += 1
                    break
                self._take(mine, own, resource, point)
        finally:
            if not mine:
                del self._clients[client_instance_id]

    def forget(self, client_instance_id: UUID) -> None:
        """Drop the series of a client that has left."""
        mine = self._clients.pop(client_instance_id, {})
        for name, labels in mine:
            family = self._families[name]
            del family.samples[labels]
            if not family.samples:
                del self._families[name]
        self.series_count -= len(mine)

    def families(self) -> Iterable[Family]:
        """Return all series by name, as the metrics registry has them."""
        return sorted(self._families.values(), key=lambda family: family.name)

    def _take(
        self,
        mine: dict[tuple[str, Labels], Series],
        own: Mapping[str, str],
        resource: Attributes,
        point: Point,
    ) -> None:
        name = series_name(point.name)
        kind: Literal["counter", "gauge"] = "counter" if point.is_sum else "gauge"
        family = self._families.get(name)
        if not name or not math.isfinite(point.value) or (family is not None and family.kind != kind):
            self.dropped += 1
            return
        labels = _labels(own, (*resource, *point.attributes))
        series = mine.get((name, labels))
        if series is None:
            if len(mine) >= SERIES_OF_CLIENT_MAX or self.series_count >= self._series_max:
                self.dropped += 1
                return
            if family is None:
                family = self._families[name] = Family(name, kind, "Pushed by clients.", {})
            series = mine[name, labels] = family.samples[labels] = Series()
            self.series_count += 1
        series.value = series.value + point.value if point.is_delta else point.value


def _decompressed(codec: Compression, metrics: bytes | memoryview, size_max: int) -> bytes:
    if codec not in (Compression.GZIP, Compression.SNAPPY):
        return decompress(codec, metrics, size_max)
    pieces: list[bytes] = []
    for piece in iter_decompressed(codec, metrics, size_max):
        if len(pieces) == PIECES_MAX:
            raise InvalidMetricsError(f"{codec.name.lower()} data has more than {PIECES_MAX} pieces")
        pieces.append(piece)
    return b"".join(pieces)


def series_name(name: str) -> str:
    """Return the name of a metric for Prometheus; empty if nothing of it can be used.

    >>> series_name("org.apache.kafka.consumer.fetch.manager.fetch.latency.avg")
    'kafka_client_consumer_fetch_manager_fetch_latency_avg'
    """
    stem = _NOT_IN_NAMES.sub("_", name.removeprefix(_PREFIX)[:NAME_LENGTH_MAX]).strip("_").lower()
    # The text formats append it to counters themselves, and a gauge must not have a counter's name.
    while stem.endswith(_TOTAL):
        stem = stem.removesuffix(_TOTAL)
    return f"kafka_client_{stem}" if stem else ""


def _labels(own: Mapping[str, str], attributes: Attributes) -> Labels:
    labels = dict(own)
    for raw, value in attributes:
        name = _NOT_IN_NAMES.sub("_", raw[:VALUE_LENGTH_MAX]).strip("_").lower()
        if not name or name[0].isdigit() or name in own or len(labels) >= LABELS_MAX:
            continue
        labels[name] = value[:VALUE_LENGTH_MAX]
    return tuple(sorted(labels.items()))
