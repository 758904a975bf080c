"""Runs the log cleaner in a broker: applies its settings, chooses its runner and publishes its metrics.

The cleaner itself is `kalda.storage.cleaner`.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kalda.broker.context.broker_context import BrokerContext
from kalda.broker.context.service_tasks import ServiceTasks
from kalda.common.metrics import Column, Metrics, metric_name
from kalda.runtime.clock import Clock
from kalda.settings import BrokerConfig
from kalda.storage.cleaner.cleaner_config import UNLIMITED, CleanerConfig
from kalda.storage.cleaner.job import CleaningResult
from kalda.storage.cleaner.log_cleaner import LogCleaner
from kalda.storage.cleaner.runner import CleaningRunner, InlineRunner, ProcessRunner
from kalda.storage.log_manager import LogManager

_RATE_MAX: Final = 1e15
"""A throttle above any disk, such as Kafka's default, is none."""

_SETTINGS_PREFIX: Final = "log.cleaner."


def run_log_cleaner(tasks: ServiceTasks, context: BrokerContext) -> None:
    """Start the log cleaner unless ``log.cleaner.enable`` is false."""
    config, runtime = context.config, context.runtime
    if not config.log_cleaner_enable:
        return

    def new_runner() -> CleaningRunner:
        background = runtime.background
        return ProcessRunner(background) if background.has_processes else InlineRunner(runtime.file_system)

    cleaner = LogCleaner(context.log_manager, lambda: cleaner_config(config), new_runner)

    def on_change(names: frozenset[str]) -> None:
        if any(name.startswith(_SETTINGS_PREFIX) for name in names):
            cleaner.reconfigure()

    context.config_store.on_broker_change(on_change)
    register_cleaner_metrics(context.metrics, cleaner, context.log_manager, context.clock)
    tasks.run("log cleaner", cleaner.run())


def cleaner_config(config: BrokerConfig) -> CleanerConfig:
    """Take the cleaner's settings in force from the broker's."""
    rate = config.log_cleaner_io_max_bytes_per_second
    return CleanerConfig(
        threads=config.log_cleaner_threads,
        dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
        load_factor=config.log_cleaner_io_buffer_load_factor,
        io_buffer_bytes=config.log_cleaner_io_buffer_size,
        io_bytes_per_second=UNLIMITED if rate >= _RATE_MAX else rate,
        backoff_ms=config.log_cleaner_backoff_ms,
    )


def register_cleaner_metrics(metrics: Metrics, cleaner: LogCleaner, logs: LogManager, clock: Clock) -> None:
    """Publish the cleaner's metrics under the names of Kafka's LogCleaner and LogCleanerManager."""

    def largest(value: Callable[[CleaningResult], float]) -> Callable[[], float]:
        return lambda: max(map(value, cleaner.last_results.values()), default=0)

    def recopied() -> float:
        results = cleaner.last_results.values()
        read = sum(result.bytes_read for result in results)
        return int(100 * sum(result.bytes_written for result in results) / max(read, 1))

    for kind, attribute, description, read in (
        (
            "LogCleanerManager",
            "max-dirty-percent",
            "Share of the dirtiest log that is not cleaned.",
            lambda: int(100 * cleaner.max_dirty_ratio),
        ),
        (
            "LogCleanerManager",
            "time-since-last-run-ms",
            "Time since the cleaner last looked for a log to clean.",
            lambda: clock.time_ms() - cleaner.last_run_ms,
        ),
        (
            "LogCleaner",
            "max-buffer-utilization-percent",
            "How full the table of keys was in the last cleaning, over all threads.",
            largest(lambda result: int(100 * result.map_utilization)),
        ),
        ("LogCleaner", "cleaner-recopy-percent", "Bytes that stayed in the last cleanings.", recopied),
        (
            "LogCleaner",
            "max-clean-time-secs",
            "Length of the last cleaning, over all threads.",
            largest(lambda result: int(result.seconds)),
        ),
        (
            "LogCleaner",
            "max-compaction-delay-secs",
            "How long the log that waits longest is overdue by max.compaction.lag.ms.",
            lambda: max(cleaner.last_delays_ms.values(), default=0) // 1000,
        ),
        (
            "LogCleaner",
            "DeadThreadCount",
            "Logs whose last cleaning ended with the death of its process.",
            lambda: cleaner.dead_workers,
        ),
    ):
        metrics.gauge(metric_name("kafka.log", kind, attribute), description, read)
    _register_uncleanable_metrics(metrics, cleaner, logs.live_directories)


def _register_uncleanable_metrics(metrics: Metrics, cleaner: LogCleaner, directories: Sequence[str]) -> None:
    metrics.table(
        lambda: [
            (
                (("logdirectory", directory),),
                (cleaner.uncleanable_count(directory), cleaner.uncleanable_bytes(directory)),
            )
            for directory in directories
        ],
        Column(
            metric_name("kafka.log", "LogCleanerManager", "uncleanable-partitions-count"),
            "gauge",
            "Logs that cannot be cleaned and are left alone.",
        ),
        Column(
            metric_name("kafka.log", "LogCleanerManager", "uncleanable-bytes"),
            "gauge",
            "Bytes of such logs that wait to be cleaned.",
        ),
    )
