"""A statement from its text to its rows: which topics it means, and how it ends by Ctrl-C."""

import signal
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from kalda.command.errors import ToolError
from kalda.common.types import TopicPartition
from kalda.tools.sql.query import Session
from kalda.topic_queries.columns import Columns
from tests.unit.topic_queries.test_topic_table import Topic


class Source(Topic):
    """A cluster with the topic ``flights``."""

    def topics(self) -> set[str]:
        return {"flights", "my.flights"}

    def stop(self) -> None:
        raise AssertionError("nothing interrupts it")


class Interrupted(Source):
    """A cluster whose read gets a Ctrl-C, and ends only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_stopped = threading.Event()

    def read(self, ranges: Mapping[TopicPartition, range]) -> Iterator[pa.RecordBatch]:
        ident = threading.main_thread().ident
        assert ident is not None
        signal.pthread_kill(ident, signal.SIGINT)
        self.is_stopped.wait()
        yield from super().read(ranges)

    def stop(self) -> None:
        self.is_stopped.set()


def rows(source: Any, statement: str) -> list[dict[str, Any]]:
    with Session(source, Columns()) as session:
        session.forbid_external_access()
        found: pa.Table = session.interruptible(lambda: session.run(statement).read_all())
        listed: list[dict[str, Any]] = found.to_pylist()
        return listed


def test_the_rows_are_those_of_the_last_statement() -> None:
    statement = (
        "CREATE TEMP TABLE marks AS SELECT t.offset AS n FROM flights t; SELECT max(n) AS n FROM marks"
    )

    assert [{"n": 99}] == rows(Source(), statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT max(t.offset) AS n FROM FLIGHTS t",
        "WITH flights AS (SELECT 99 AS n) SELECT n FROM flights",
        'FROM (PIVOT (SELECT key, t.offset AS n FROM flights t) ON key USING max(n)) SELECT "1" AS n',
        'SELECT max(a.offset) AS n FROM flights a JOIN flights b USING (key, "offset", partition)',
    ],
)
def test_statements_of_all_forms_find_their_topics(statement: str) -> None:
    assert [{"n": 99}] == rows(Source(), statement)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT * FROM flihgts", r"^topic flihgts does not exist; did you mean `flights`\?$"),
        (
            "SELECT * FROM my.flights",
            '^the name of topic my.flights needs double quotes: "my.flights"$',
        ),
        ("SELECT offset FROM flights", 'write "offset" in double quotes, or t.offset$'),
        ("SELECT * FROM my-flights", "need double quotes$"),
        ("COPY flights TO 'x.csv'", "--external-access allows it$"),
    ],
)
def test_errors_say_what_to_do(statement: str, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        rows(Source(), statement)


def test_an_error_of_a_read_is_raised_as_it_was() -> None:
    source = Source()
    source.error = ToolError("the broker is gone")

    with pytest.raises(ToolError, match=r"^the broker is gone$"):
        rows(source, "SELECT * FROM flights")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT max(key) FROM flights",
        "SELECT count(*) FROM flights, range(1000000000000) n WHERE n.range % 7 = partition",
    ],
    ids=["reads", "computes"],
)
def test_ctrl_c_ends_a_statement(statement: str) -> None:
    """DuckDB works in C++, where Python runs no handler of a signal."""
    # A shell starts programs in the background with the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            rows(Interrupted(), statement)
    finally:
        signal.signal(signal.SIGINT, before)
