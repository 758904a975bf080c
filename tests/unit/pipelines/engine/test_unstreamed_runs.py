"""Mirrors and publishers run in a thread that a stop ends."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pyarrow as pa
import pytest

from kalda.pipelines.engine import unstreamed_runs as copies
from kalda.pipelines.engine.unstreamed_runs import CopyRun
from kalda.pipelines.publish.table_publisher import PublishResult
from kalda.pipelines.spec.parser import parse_pipeline_file

FILE = """\
name: n
storage: state
clusters: {b: {bootstrap.servers: "127.0.0.1:1"}}
pipelines:
  - {name: publish, from: {table: lake.dim}, to: {topic: dim}}
  - {name: copy, mirror: {source: main, target: b, topics: orders}}
"""


class Endless:
    """A publisher or mirror with much to copy: it ends behind the transaction in which `stop` is called."""

    def __init__(self, *_: object) -> None:
        self.stopped = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stop(self) -> None:
        self.stopped.set()

    def run_once(self) -> PublishResult:
        BEGUN.set()
        self.stopped.wait(30)
        return PublishResult(0, 0, 1)

    def statistics(self) -> object:
        return SimpleNamespace(records=0, lag=0)


BEGUN = threading.Event()


@pytest.mark.parametrize("name", ["publish", "copy"])
def test_a_stop_ends_a_long_copy_behind_its_transaction(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first reading of a large table would be cut off in the middle of a transaction."""
    table = SimpleNamespace(schema=lambda: pa.schema([("value", pa.string())]))
    monkeypatch.setattr(copies, "open_table", lambda _: table)
    monkeypatch.setattr(copies, "TablePublisher", Endless)
    monkeypatch.setattr(copies, "Mirror", Endless)
    file = parse_pipeline_file(FILE, "p.yml", directory=Path("/srv"), variables={})
    (spec,) = (each for each in file.pipelines if each.name == name)
    BEGUN.clear()
    run = CopyRun(spec, file, is_once=False, report=lambda _records, _lag: None)
    run.start()
    assert BEGUN.wait(30)

    run.stop(20)
    assert not run.is_active
    assert run.error() is None
