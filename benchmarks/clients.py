"""Kalda's clients beside kafka-python, aiokafka and confluent-kafka, on one broker at 100 B and 1 KB.

Every measurement is a process of its own (`clients_child`), so that no client pays for another one's threads
or garbage. All clients use ``acks=1``, ``linger.ms=5`` and their own defaults for batches. Each figure is the
median of several runs, taken in turn over the clients, so that a slow minute of the machine falls on all of
them.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from typing import Final

from benchmarks.end_to_end import Figure, create_topic, delete_topic

_RUNS: Final = 3
_TIMEOUT_SECONDS: Final = 180

SIZES: Final = (100, 1_000)
_SLOW_COUNTS: Final = {100: 200_000, 1_000: 100_000}
_FAST_COUNTS: Final = {100: 1_000_000, 1_000: 300_000}
"""Records of one run, by the size of their values: record by record in Python, and all others."""
_FAST: Final = ("kalda send_arrow", "confluent produce", "kalda poll_arrow", "confluent consume")

PRODUCERS: Final = (
    "kalda send",
    "kafka-python send",
    "aiokafka send",
    "kalda send_arrow",
    "confluent produce",
)
CONSUMERS: Final = (
    "kalda records",
    "kafka-python records",
    "aiokafka records",
    "kalda poll_arrow",
    "confluent consume",
)
LATENCIES: Final = ("kalda", "confluent", "kalda asyncio", "aiokafka")
MOMENTS: Final = ("acknowledged", "received")
"""Until when one record in flight is timed: the result of `send`, or the consumer's `poll`."""
_LATENCY_ROUNDS: Final = 2_000


def run(bootstrap: str) -> list[Figure]:
    """Measure throughput of producers and consumers, and the latency of one record in flight."""
    figures: list[Figure] = []
    for size in SIZES:
        rates = rates_of(bootstrap, PRODUCERS, size, filled=False)
        rates |= rates_of(bootstrap, CONSUMERS, size, filled=True)
        figures += [(f"{name}, {size} B", rate / 1e6, "M records/s") for name, rate in rates.items()]
        figures += [
            (f"{ours} / {theirs}, {size} B", rates[ours] / rates[theirs], "x")
            for ours, theirs in (
                ("kalda send", "kafka-python send"),
                ("kalda send", "aiokafka send"),
                ("kalda send_arrow", "confluent produce"),
                ("kalda records", "kafka-python records"),
                ("kalda records", "aiokafka records"),
                ("kalda poll_arrow", "confluent consume"),
            )
        ]
    return [*figures, *latencies_of(bootstrap), *_outages()]


def latencies_of(bootstrap: str) -> list[Figure]:
    """Measure one record in flight; each run takes its turn over the clients."""
    cases = list(product(MOMENTS, SIZES, LATENCIES))
    found: dict[tuple[str, int, str], list[dict[str, float]]] = {case: [] for case in cases}
    for _ in range(_RUNS):
        for moment, size, client in cases:
            topic = f"{moment}-{size}-{client.replace(' ', '-')}"
            create_topic(bootstrap, topic)
            found[moment, size, client].append(child(client, moment, bootstrap, topic, size, _LATENCY_ROUNDS))
            delete_topic(bootstrap, topic)
    return [
        (
            f"{client}, one in flight of {size} B until {moment}, {name}",
            statistics.median(run[f"{name}_ms"] for run in runs),
            "ms",
        )
        for (moment, size, client), runs in found.items()
        for name in ("p50", "p99")
    ]


def _outages() -> list[Figure]:
    """Measure a producer whose broker, one of its own, is gone for a minute."""
    figures: list[Figure] = []
    for size in SIZES:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.clients_outage", str(size)],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=True,
        )
        found: dict[str, float] = json.loads(done.stdout)
        lost = found["sent"] - found["delivered"]
        grown = found["most_mb"] - found["before_mb"]
        figures.append((f"kalda, brokers gone for a minute, {size} B: memory grown", grown, "MB"))
        figures.append((f"kalda, brokers gone for a minute, {size} B: records lost", lost, "records"))
    return figures


def child(client: str, verb: str, bootstrap: str, topic: str, size: int, count: int) -> dict[str, float]:
    """Run one measurement in a process of its own; return its figures."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.clients_child",
            client,
            verb,
            bootstrap,
            topic,
            str(size),
            str(count),
        ],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{client} {verb} of {size} B failed:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def rates_of(bootstrap: str, clients: Sequence[str], size: int, *, filled: bool) -> dict[str, float]:
    """Return records a second by client; consumers read one topic that is filled before."""
    found: dict[str, list[float]] = {client: [] for client in clients}
    shared = f"clients-{size}"
    if filled:
        create_topic(bootstrap, shared)
        child("confluent produce", "produce", bootstrap, shared, size, _FAST_COUNTS[size])
    for number in range(_RUNS):
        for client in clients:
            topic = shared if filled else f"clients-{size}-{number}-{client.replace(' ', '-')}"
            if not filled:
                create_topic(bootstrap, topic)
            count = (_FAST_COUNTS if client in _FAST else _SLOW_COUNTS)[size]
            verb = "consume" if filled else "produce"
            found[client].append(count / child(client, verb, bootstrap, topic, size, count)["seconds"])
            if not filled:
                delete_topic(bootstrap, topic)
    if filled:
        delete_topic(bootstrap, shared)
    return {client: statistics.median(rates) for client, rates in found.items()}
