"""`make bench` and `make bench-kafka`: one line per figure, Apache Kafka's beside it where it can be had."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from benchmarks import (
    acls,
    cleaner,
    clients,
    columnar,
    commands,
    coordination,
    coordinators,
    end_to_end,
    engines,
    failover,
    footprint,
    growth,
    growth_clients,
    http_console,
    http_registry,
    http_stream,
    message_formats,
    metrics,
    mirror,
    namespaces,
    nats_fan_out,
    page_cache,
    protocol_codec,
    pytest_sessions,
    quotas,
    replication,
    request_rate,
    schema_validation,
    share_backoff,
    share_groups,
    spark,
    storage,
    tls,
)
from benchmarks.apache_kafka import ApacheKafka, NotAvailableError
from benchmarks.end_to_end import Figure
from benchmarks.footprint import memory_mb
from kalda.testing import KaldaProcess

_AGAINST_A_BROKER: Final[dict[str, Callable[[str, int], list[Figure]]]] = {
    "end_to_end": lambda bootstrap, _: end_to_end.run(bootstrap),
    "request_rate": request_rate.run,
    "clients": lambda bootstrap, _: clients.run(bootstrap),
}
"""Each is called with the bootstrap servers and the pid of one broker."""
_ALONE: Final[dict[str, Callable[[], list[Figure]]]] = {
    "footprint": footprint.run,
    "metrics": metrics.run,
    "nats_fan_out": nats_fan_out.run,
    "failover": failover.run,
    "engines": engines.run,
    "columnar": columnar.run,
    "commands": commands.run,
    "storage": storage.run,
    "protocol_codec": protocol_codec.run,
    "message_formats": message_formats.run,
    "mirror": mirror.run,
    "quotas": quotas.run,
    "acls": acls.run,
    "growth": growth.run,
    "pytest_sessions": pytest_sessions.run,
    "growth_clients": growth_clients.run,
    "namespaces": namespaces.run,
    "http_console": http_console.run,
    "http_registry": http_registry.run,
    "http_stream": http_stream.run,
    "schema_validation": schema_validation.run,
    "share_backoff": share_backoff.run,
}
_SPARK: Final = "spark"
_BESIDE: Final[dict[str, tuple[Callable[[], list[Figure]], Callable[[], list[Figure]]]]] = {
    "coordination": (coordination.run, coordination.run_zookeeper),
    "replication": (replication.run, replication.run_apache_kafka),
    "cleaner": (cleaner.run, cleaner.run_apache_kafka),
    "coordinators": (coordinators.run, coordinators.run_apache_kafka),
    "share_groups": (share_groups.run, share_groups.run_apache_kafka),
    "tls": (tls.run, tls.run_apache_kafka),
}
"""Ours and the other side's, each with processes of its own."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for and print it."""
    names = [*_AGAINST_A_BROKER, *_ALONE, *_BESIDE, _SPARK]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--with-kafka", action="store_true", help="measure Apache Kafka too (needs mvn, java)"
    )
    parser.add_argument(
        "--only", action="append", choices=names, help="one group of figures; may be repeated"
    )
    parser.add_argument(
        "--full-page-cache",
        action="store_true",
        help="fill the page cache before each bulk run with a file as large as the memory (page_cache.py)",
    )
    options = parser.parse_args(arguments)
    # An installed program has its bytecode; without it a start compiles everything and takes twice as long.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # What is measured is what runs in production: without the full checks that `kalda.testing` switches on.
    os.environ["KALDA_CHECK_INVARIANTS"] = "0"
    with page_cache.kept_full() if options.full_page_cache else nullcontext():
        _run(options.only or names, with_kafka=options.with_kafka)
    return 0


def _run(wanted: Sequence[str], *, with_kafka: bool) -> None:
    for name in wanted:
        if name in _ALONE:
            for figure in _ALONE[name]():
                _print(figure)
    for name in wanted:
        if name in _AGAINST_A_BROKER:
            _compare(name, with_kafka=with_kafka)
        if name in _BESIDE:
            _print_beside(*_BESIDE[name], with_other=with_kafka)
        if name == _SPARK:
            spark.run(with_official=with_kafka)


def _print_beside(
    ours: Callable[[], list[Figure]], theirs: Callable[[], list[Figure]], *, with_other: bool
) -> None:
    figures = ours()
    others: dict[str, float] = {}
    if with_other:
        try:
            others = {label: value for label, value, _ in theirs()}
        except NotAvailableError as error:
            print(f"the other side is not compared: {error}", file=sys.stderr)
    for figure in figures:
        _print(figure, others.get(figure[0]))


def _compare(name: str, *, with_kafka: bool) -> None:
    measure = _AGAINST_A_BROKER[name]
    with tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory:
        kalda = KaldaProcess(Path(directory) / "data")
        with kalda:
            ours = measure(kalda.bootstrap, kalda.pid)
            ours.append((f"memory after {name}", memory_mb(kalda.pid), "MB"))
            ours.append((f"start before {name}", kalda.start_seconds, "s"))
    theirs: dict[str, float] = {}
    if with_kafka:
        try:
            with ApacheKafka() as kafka:
                theirs = {label: value for label, value, _ in measure(kafka.bootstrap, kafka.pid)}
                theirs[f"memory after {name}"] = memory_mb(kafka.pid)
                theirs[f"start before {name}"] = kafka.start_seconds
        except NotAvailableError as error:
            print(f"Apache Kafka is not compared: {error}", file=sys.stderr)
    for figure in ours:
        _print(figure, theirs.get(figure[0]))


def _print(figure: Figure, other: float | None = None) -> None:
    label, value, unit = figure
    line = f"{label:<58} {value:>10.3f} {unit:<8}"
    if other is not None:
        line += f"  other {other:>10.3f}  ratio {value / other:>6.2f}"
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
