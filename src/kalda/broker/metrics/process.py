"""Publishes the metrics of the process and of its event loop.

The names of the process metrics are those of every Prometheus client library. They are read from ``/proc``
here, because the import of prometheus-client alone blocks the loop for 50 ms. A system without ``/proc``
lacks them.
"""

import os
import resource
from functools import cache
from typing import Final

from kalda.common.busy_time import IdleShare, busy_seconds
from kalda.common.metrics import Column, Labels, Metrics, metric_name
from kalda.runtime.system.proc import open_descriptor_count, proc_file
from kalda.storage.descriptors import descriptors_max

_PAGE_BYTES: Final = resource.getpagesize()
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_NO_LABELS: Final[Labels] = ()


def register_process_metrics(metrics: Metrics) -> None:
    """Publish memory, processor time and open files, and the bytes that went to and came from disks."""
    metrics.table(
        lambda: [(_NO_LABELS, (*_from_stat(), open_descriptor_count(), descriptors_max()))],
        Column("process_cpu_seconds", "counter", "User and system CPU time in seconds."),
        Column("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes."),
        Column("process_resident_memory_bytes", "gauge", "Resident memory size in bytes."),
        Column("process_start_time_seconds", "gauge", "Start of the process in seconds since the epoch."),
        Column("process_open_fds", "gauge", "Open file descriptors."),
        Column("process_max_fds", "gauge", "The limit on open file descriptors."),
    )
    metrics.table(
        lambda: [(_NO_LABELS, _disk_bytes())],
        Column(
            metric_name("kafka.server", "KafkaServer", "linux-disk-read-bytes"),
            "gauge",
            "Bytes that the process caused to be read from disks since its start.",
        ),
        Column(
            metric_name("kafka.server", "KafkaServer", "linux-disk-write-bytes"),
            "gauge",
            "Bytes that the process caused to be written to disks since its start.",
        ),
    )


def register_loop_metrics(metrics: Metrics) -> None:
    """Publish how busy the event loop is; the thread of the loop must call this function.

    Kafka has a pool of threads for the network and another one for requests. Here one loop does both, so both
    of Kafka's metrics are the share of time in which the loop waits.
    """
    metrics.counter_function(
        "kalda_loop_busy_seconds",
        "Seconds in which the event loop ran or waited for a processor; its rate is the busy share.",
        busy_seconds,
    )
    idle = IdleShare()
    for kind, attribute, of_what in (
        ("kafka.network:SocketServer", "NetworkProcessorAvgIdlePercent", "network"),
        ("kafka.server:KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent", "requests"),
    ):
        domain, _, type_name = kind.partition(":")
        metrics.gauge(
            metric_name(domain, type_name, attribute),
            f"Share (0 to 1) of the last 30 s in which the event loop, which serves {of_what}, waited.",
            idle.read,
        )


def _from_stat() -> tuple[float | None, ...]:
    """Return CPU seconds, virtual and resident bytes, and the time of the start."""
    try:
        # The name of the command is in parentheses and may hold anything.
        fields = proc_file("self/stat").rpartition(b")")[2].split()
    except OSError:
        return None, None, None, None
    user, system, started, virtual, resident = (int(fields[index]) for index in (11, 12, 19, 20, 21))
    booted = _boot_time()
    return (
        (user + system) / _TICKS_PER_SECOND,
        virtual,
        resident * _PAGE_BYTES,
        None if booted is None else booted + started / _TICKS_PER_SECOND,
    )


@cache
def _boot_time() -> float | None:
    try:
        for line in proc_file("stat").splitlines():
            if line.startswith(b"btime "):
                return float(line.split()[1])
    except OSError:
        pass
    return None


def _disk_bytes() -> tuple[int | None, int | None]:
    try:
        fields = dict(line.split(b": ") for line in proc_file("self/io").splitlines())
    except OSError:
        return None, None
    return int(fields[b"read_bytes"]), int(fields[b"write_bytes"])
