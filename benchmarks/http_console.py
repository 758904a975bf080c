"""What the console's first page and later ones take, with 1,000 and 10,000 topics.

The process of `kalda http` is new for each number of topics; its processor time and the size of the page are
the figures that a shared machine does not change.
"""

import tempfile
import time
from pathlib import Path
from typing import Final

import httpx

from benchmarks.end_to_end import Figure
from benchmarks.http_server import http_server
from benchmarks.request_rate import processor_seconds
from kalda import Admin, NewTopic
from kalda.testing import KaldaProcess

_TOPICS: Final = (1_000, 10_000)
_CREATED_AT_ONCE: Final = 100
_PAGES: Final = (
    ("first page", "/console/topics"),
    ("the same again", "/console/topics"),
    ("a search", "/console/topics?search=99"),
    ("one topic", "/console/topics/topic-00099"),
    ("overview", "/console/"),
)
_CREATE_TIMEOUT_MS: Final = 600_000


def run() -> list[Figure]:
    """Measure each number of topics with a broker and a server of its own."""
    figures: list[Figure] = []
    for count in _TOPICS:
        with (
            tempfile.TemporaryDirectory(prefix="kalda-http-console-") as directory,
            KaldaProcess(Path(directory) / "data") as kalda,
        ):
            _create(kalda.bootstrap, count)
            figures += _measure(kalda.bootstrap, count)
    return figures


def _create(bootstrap: str, count: int) -> None:
    names = [f"topic-{number:05}" for number in range(count)]
    with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=_CREATE_TIMEOUT_MS) as admin:
        for first in range(0, count, _CREATED_AT_ONCE):
            topics = [NewTopic(name, 1, 1) for name in names[first : first + _CREATED_AT_ONCE]]
            admin.create_topics(topics)


def _measure(bootstrap: str, count: int) -> list[Figure]:
    figures: list[Figure] = []
    with (
        http_server(bootstrap) as (pid, address),
        httpx.Client(base_url=f"http://{address}", timeout=120) as client,
    ):
        client.get("/healthz")
        for name, path in _PAGES:
            used, began = processor_seconds(pid), time.monotonic()
            response = client.get(path)
            seconds = time.monotonic() - began
            used = processor_seconds(pid) - used
            response.raise_for_status()
            figures += [
                (f"console with {count} topics: {name}", seconds, "s"),
                (f"console with {count} topics: {name}, processor time", used, "s"),
                (f"console with {count} topics: {name}, size", len(response.content) / 1000, "KB"),
            ]
    return figures
