"""The metrics of a broker for Prometheus: ``GET /metrics`` on ``metrics.port``.

Just enough HTTP/1.1 for a scraper: one request per connection, a bounded head, no body, a time limit, few
connections at a time. It shares the broker's event loop, so a scrape costs the broker the time to render:
about a microsecond per line.
"""

import asyncio
import logging
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from kalda.common.metrics import Counter, Family, Histogram, Labels, Metrics

logger = logging.getLogger(__name__)

HEAD_BYTES_MAX: Final = 8 * 1024
"""Prometheus sends some 300 bytes; 8 KiB is what common servers take."""

REQUEST_SECONDS_MAX: Final = 5.0
"""For the whole exchange; a scraper's own time-out is 10 seconds by default."""

CONNECTIONS_MAX: Final = 16
"""More scrapers than this at once are turned away, so that they cannot take the broker's descriptors."""

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer:
    """The HTTP endpoint of one registry."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics: Final = metrics
        self._server: asyncio.Server | None = None
        self._connection_count = 0

    async def listen(self, host: str, port: int) -> int:
        """Begin to serve; return the port, which is the system's choice if `port` is 0.

        Raises:
            OSError: the address cannot be bound.
        """
        self._server = await asyncio.start_server(
            self._serve, host or None, port, limit=HEAD_BYTES_MAX, reuse_address=True
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop serving and wait until the port is free."""
        self.close_nowait()
        if self._server is not None:
            await self._server.wait_closed()

    def close_nowait(self) -> None:
        """Stop accepting scrapes; one that is under way may still end."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connection_count >= CONNECTIONS_MAX:
            writer.close()
            return
        self._connection_count += 1
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
        except asyncio.LimitOverrunError:
            writer.write(_response("431 Request Header Fields Too Large"))
        except (asyncio.IncompleteReadError, TimeoutError, OSError) as error:
            logger.debug("a metrics request was not finished: %r", error)
        finally:
            self._connection_count -= 1
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response("400 Bad Request")
        method, target, _ = words
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", extra="Allow: GET, HEAD\r\n")
        if target.split(b"?", 1)[0] != b"/metrics":
            return _response("404 Not Found", b"the metrics are at /metrics\n")
        try:
            body = render(self._metrics)
        except Exception:
            logger.exception("metrics could not be rendered")
            return _response("500 Internal Server Error")
        return _response("200 OK", body, with_body=method == b"GET")


def render(metrics: Metrics) -> bytes:
    """Write every metric in Prometheus' text format, with those of the process.

    The lines of our own metrics are written here: prometheus-client needs four times as long for the same
    text, and with thousands of partitions that would show in the latency of everything else.
    """
    # Imported at the first scrape: a broker without scrapers saves 50 ms of start-up and the memory.
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    process = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=process)
    lines: list[str] = []
    for family in metrics.families():
        _render_family(family, lines)
    lines.append("")
    return "\n".join(lines).encode() + generate_latest(process)


def _render_family(family: Family, lines: list[str]) -> None:
    name = f"{family.name}_total" if family.kind == "counter" else family.name
    lines.append(f"# HELP {name} {family.help}")
    lines.append(f"# TYPE {name} {family.kind}")
    for labels, instrument in tuple(family.samples.items()):
        if isinstance(instrument, Histogram):
            _render_histogram(name, labels, instrument, lines)
        else:
            value = instrument.value if isinstance(instrument, Counter) else instrument()
            lines.append(f"{name}{_label_text(labels)} {value!r}")
    for listing in family.listings:
        for listed, value in listing():
            lines.append(f"{name}{_label_text(listed.items())} {value!r}")


def _render_histogram(name: str, labels: Labels, histogram: Histogram, lines: list[str]) -> None:
    bounds = [f"{bound:g}" for bound in histogram.bounds] + ["+Inf"]
    running = list(accumulate(histogram.counts))
    for bound, count in zip(bounds, running, strict=True):
        lines.append(f"{name}_bucket{_label_text((*labels, ('le', bound)))} {count}")
    lines.append(f"{name}_count{_label_text(labels)} {running[-1]}")
    lines.append(f"{name}_sum{_label_text(labels)} {histogram.sum!r}")


def _label_text(labels: Iterable[tuple[str, str]]) -> str:
    text = ",".join([f'{label}="{_escape(value)}"' for label, value in labels])
    return f"{{{text}}}" if text else ""


def _escape(value: str) -> str:
    if '"' in value or "\\" in value or "\n" in value:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value


def _response(status: str, body: bytes = b"", extra: str = "", with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n"
        f"{extra}Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + (body if with_body else b"")
