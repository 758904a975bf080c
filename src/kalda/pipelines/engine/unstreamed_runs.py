"""Runs the pipelines that need no streaming query: mirrors, and tables that are published in topics.

Each runs in a thread of the driver, with the interface of a streaming pipeline's run. Both keep their
progress in the target cluster, in the same transactions as the records.
"""

import logging
import re
import threading
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from kalda.pipelines.engine.errors import NotThereYetError
from kalda.pipelines.engine.table_target import source_table
from kalda.pipelines.engine.target_settings import topic_rows
from kalda.pipelines.mirror.cluster_settings import ClusterSettings
from kalda.pipelines.mirror.mirror import Mirror, MirrorOptions
from kalda.pipelines.mirror.policy import MirrorNames, NameFilter, RenameRule
from kalda.pipelines.publish.table_publisher import PublishOptions, TablePublisher
from kalda.pipelines.spec.model import (
    MirrorSpec,
    MirrorSync,
    PipelineFile,
    PipelineSpec,
    Rename,
    TableSource,
    TopicTarget,
    TriggerKind,
)
from kalda.pipelines.tables import TableError, open_table
from kalda.spark.source.java_regex import translate_java_regex

logger: Final = logging.getLogger(__name__)


class CopyRun:
    """One run of a mirror or of a publisher, in a thread."""

    def __init__(
        self, spec: PipelineSpec, file: PipelineFile, *, is_once: bool, report: Callable[[int, int], None]
    ) -> None:
        """Take what to run; `report` gets the records since the last call, and the lag."""
        self._spec: Final = spec
        self._file: Final = file
        self._is_once: Final = is_once or spec.trigger.kind is not TriggerKind.INTERVAL
        self._report: Final = report
        self._stop: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._main, name=f"pipeline-{spec.name}", daemon=True)
        self._failure: Exception | None = None
        self._copying: Mirror | TablePublisher | None = None
        self.batch_id: int | None = None
        """None: these pipelines have no batches."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_active(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def error(self) -> Exception | None:
        """Return why the run ended; None for a regular end."""
        return self._failure

    def wait(self, seconds: float) -> None:
        """Wait until the thread has ended, or the time is over."""
        self._thread.join(seconds)

    def request_stop(self) -> None:
        """End behind the transaction under way."""
        self._stop.set()
        copying = self._copying
        if copying is not None:
            copying.stop()

    def stop(self, wait_s: float) -> None:
        """End behind the transaction under way, and wait for that."""
        self.request_stop()
        if self._thread.ident is not None:
            self._thread.join(wait_s)
        if self._thread.is_alive():
            name = self._spec.name
            logger.warning("the transaction of %s is interrupted; the next start repeats it", name)

    def close(self) -> None:
        """Nothing stays open behind the thread."""

    def _main(self) -> None:
        try:
            if self._spec.mirror is not None:
                self._run_mirror(self._spec.mirror)
            else:
                self._run_publisher()
        except Exception as error:
            self._failure = error

    def _run_mirror(self, spec: MirrorSpec) -> None:
        with Mirror(mirror_options(self._spec, spec, self._file)) as mirror:
            self._copying = mirror
            seen = 0
            while not self._stop.is_set():
                mirror.run_once()
                statistics = mirror.statistics()
                self._report(statistics.records - seen, statistics.lag)
                seen = statistics.records
                if self._is_once:
                    return
                self._stop.wait(self._spec.trigger.interval_ms / 1000)

    def _run_publisher(self) -> None:
        source, target = self._spec.source, self._spec.target
        assert isinstance(source, TableSource), self._spec.kind
        assert isinstance(target, TopicTarget), self._spec.kind
        table = open_table(source_table(source))
        columns = table.schema()
        if columns is None:
            # Another pipeline creates it with its first batch. What runs once ends with an error instead.
            kind = TableError if self._is_once else NotThereYetError
            raise kind(f"the table {source.table} does not exist at {source.path}")
        options = publish_options(self._spec, source, target, self._file, columns)
        with TablePublisher(options, table) as publisher:
            self._copying = publisher
            while not self._stop.is_set():
                result = publisher.run_once()
                self._report(result.records + result.tombstones, 0)
                if self._is_once:
                    return
                self._stop.wait(self._spec.trigger.interval_ms / 1000)


def mirror_options(spec: PipelineSpec, mirror: MirrorSpec, file: PipelineFile) -> MirrorOptions:
    """Return a mirror's settings from the file."""
    pattern: re.Pattern[str] = translate_java_regex(mirror.topics)
    rule = RenameRule.PREFIX if mirror.rename is Rename.PREFIX else RenameRule.IDENTITY
    return MirrorOptions(
        name=spec.name,
        source=ClusterSettings(file.cluster(mirror.source).properties),
        target=ClusterSettings(file.cluster(mirror.target).properties),
        names=MirrorNames(mirror.source, mirror.target, NameFilter(pattern), rule),
        sync_configs=MirrorSync.CONFIGS in mirror.sync,
        sync_groups=MirrorSync.GROUPS in mirror.sync,
        start=mirror.start.value,
    )


def publish_options(
    spec: PipelineSpec, source: TableSource, target: TopicTarget, file: PipelineFile, columns: pa.Schema
) -> PublishOptions:
    """Return a publisher's settings from the file."""
    return PublishOptions(
        pipeline=spec.name,
        group=spec.group_id,
        table=source.path,
        topic=target.topic,
        rows=topic_rows(target, columns),
        producer={**file.cluster(target.cluster).properties, **target.options},
        changes=source.changes,
        tombstones=target.tombstones,
    )
