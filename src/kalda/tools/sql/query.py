"""Runs one SQL statement over topics in DuckDB and writes its rows as they come."""

import re
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from contextlib import suppress
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import duckdb
import pyarrow as pa

from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.command.command import Tool
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.output import is_terminal
from kalda.common.extras import install_hint
from kalda.common.log_text import counted
from kalda.common.nearest import DATA_CUTOFF, did_you_mean
from kalda.tools.sql.request import BYTES, TEXT, QueryRequest, RowForm
from kalda.tools.sql.rows_out import open_writer
from kalda.topic_queries.columns import Columns, UndecodableValueError
from kalda.topic_queries.topic_source import ClusterSource
from kalda.topic_queries.topic_table import TopicTable

if TYPE_CHECKING:
    from typing import BinaryIO

    from kalda.formats.decoded import Decoder

T = TypeVar("T")

_ROWS_PER_BATCH: Final = 10_000

_ENDS_BY_ITSELF_S: Final = 1.0
"""How long Ctrl-C waits for a statement whose reads have ended."""
_INTERRUPT_S: Final = 2.0
"""How long it then waits for one that DuckDB was asked to stop; the process ends without it."""

_DEFAULTS: Final = {
    "client.id": "kalda-sql",
    "default.api.timeout.ms": "15000",
    "isolation.level": "read_committed",
}
"""A person waits for the result, and looks at what is valid; settings of the command line win."""

_NO_TABLE: Final = re.compile(r'Table with name "?(.+?)"? does not exist')
_OFFSET: Final = re.compile(r"(?<![\w.\"])offset(?![\w\"])", re.IGNORECASE)
_DASH_IN_NAME: Final = re.compile(r"\b(from|join)\s+\w+[-.]", re.IGNORECASE)

_FIXED: Final = {"auto.offset.reset": "earliest", "enable.auto.commit": "false"}


def run_query(tool: Tool, request: QueryRequest) -> None:
    """Run the statement.

    Raises:
        ToolUsageError: an option is wrong.
        ToolError: DuckDB refuses the statement, a topic does not exist, or a value cannot be decoded.
    """
    request.check()
    if request.form is RowForm.ARROW and request.output_file is None and is_terminal(sys.stdout):
        raise ToolUsageError("--format=arrow is not for a terminal: give --output, or a pipe")
    columns = Columns(
        is_key_text=request.is_key_text,
        is_value_text=request.value_format != BYTES,
        decoder=None if request.value_format in (TEXT, BYTES) else _decoder(request),
        skips_errors=request.skips_errors,
    )
    settings = {**_DEFAULTS, **tool.settings_for(ConsumerConfig), **_FIXED}
    settings.pop("group.id", None)  # nothing is committed
    with ClusterSource(settings) as source, Session(source, columns) as session:
        if not request.has_external_access:
            session.forbid_external_access()
        count = session.interruptible(lambda: _write(tool, request, session.run(request.statement)))
        tool.output.note(f"{counted(count, 'row')}; {counted(source.read_count, 'record')} read")


def _decoder(request: QueryRequest) -> "Decoder":
    """Return the decoder of the values, which has a schema."""
    try:
        from kalda.formats import FormatError, FormatSpec, RegistryError, open_decoder
    except ModuleNotFoundError as error:
        raise ToolError(
            f"--value-format={request.value_format} needs the package {error.name}; "
            f"{install_hint('pipelines')}"
        ) from None

    file = None if request.value_schema_file is None else str(request.value_schema_file)
    spec = FormatSpec(request.value_format, request.value_schema, file, request.value_options)
    try:
        decoder = open_decoder(spec)
        schema = decoder.schema()
    except FormatError as error:
        raise ToolUsageError(f"--value-format={request.value_format}: {error}") from None
    except RegistryError as error:
        raise ToolError(f"--value-format={request.value_format}: {error}") from None
    if schema is None:
        raise ToolUsageError(
            f"--value-format={request.value_format} needs --value-schema or --value-schema-file: the columns "
            "of a table are known before its rows; fields of JSON without a schema are value->>'$.field'"
        )
    return decoder


def _write(tool: Tool, request: QueryRequest, rows: pa.RecordBatchReader) -> int:
    """Write the rows and return their number."""
    path = request.output_file
    if path is None:
        return _write_to(None, rows, tool, request.form)
    try:
        with path.open("wb") as file:
            return _write_to(file, rows, tool, request.form)
    except OSError as error:
        raise ToolError(f"--output={path} cannot be written: {error.strerror or error}") from None


def _write_to(file: "BinaryIO | None", rows: pa.RecordBatchReader, tool: Tool, form: RowForm) -> int:
    writer = open_writer(form, rows.schema, tool.output, file)
    count = 0
    for batch in rows:
        writer.write(batch)
        count += batch.num_rows
        if file is None:
            tool.output.flush()
    writer.close()
    return count


def topics_named(statement: str, topics: Iterable[str]) -> list[str]:
    """Return the topics whose names occur in a statement; some may stand for something else there.

    DuckDB can name the tables of a statement only when it knows their columns. Names have no case in SQL, so
    of topics that differ only in case the one counts that is spelled in the statement.

    Raises:
        ToolError: it is one of several such topics, and not clear which.
    """
    alike: dict[str, list[tuple[bool, str]]] = {}
    lower = statement.lower()
    for topic in sorted(topics):
        if topic.lower() not in lower:  # most of many; a pattern for each would take seconds
            continue
        spelled = re.findall(rf"(?<![\w.-]){re.escape(topic)}(?![\w.-])", statement, re.IGNORECASE)
        if spelled:
            alike.setdefault(topic.lower(), []).append((topic in spelled, topic))
    found = []
    for group in alike.values():
        chosen = [topic for is_exact, topic in group if is_exact] or [topic for _, topic in group]
        if len(chosen) > 1:
            raise ToolError(f"the topics {' and '.join(chosen)} differ only in case, which SQL does not see")
        found += chosen
    return found


def _complete(running: "Future[T]", work: Callable[[], T]) -> None:
    try:
        running.set_result(work())
    except BaseException as error:
        running.set_exception(error)


class Session:
    """A database in memory whose tables are topics, for one statement."""

    def __init__(self, source: ClusterSource, columns: Columns) -> None:
        self._source: Final = source
        self._columns: Final = columns
        self._tables: Final[dict[str, TopicTable]] = {}
        self._topics: set[str] = set()
        self._statement = ""
        self._running: Future[Any] = Future()
        self._running.set_result(None)
        # Rows that do not fit into memory while they are sorted or joined are kept here.
        self._directory: Final = TemporaryDirectory(prefix="kalda-sql-")
        self._database: Final = duckdb.connect(
            config={"temp_directory": self._directory.name, "python_enable_replacements": "false"}
        )
        self._database.execute("SET TimeZone = 'UTC'")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A thread of DuckDB may still end the statement that was interrupted; the process closes it then.
        if self._running.done():
            with suppress(duckdb.Error):
                self._database.close()
        self._directory.cleanup()

    def forbid_external_access(self) -> None:
        """Allow no files, no networks and no extensions: statements may come from other people."""
        for setting in ("enable_external_access = false", "lock_configuration = true"):
            self._database.execute(f"SET {setting}")

    def interruptible(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, or raise its error; Ctrl-C stops the statement and the reads.

        `work` runs in another thread: while DuckDB computes, Python handles no signal in the thread that
        called it.

        Raises:
            ToolError: DuckDB refused the statement, or failed.
        """
        running: Future[T] = Future()
        self._running = running
        # A daemon: the process must end although a statement does not.
        thread = threading.Thread(target=_complete, args=(running, work), name="kalda-sql", daemon=True)
        try:
            thread.start()  # Ctrl-C may come before this returns
            return running.result()
        except Exception as error:
            for table in self._tables.values():
                if isinstance(table.failure, UndecodableValueError):
                    raise ToolError(
                        f"{table.failure}; --skip-message-on-error leaves such records out"
                    ) from None
                if table.failure is not None:
                    raise table.failure from None  # DuckDB passes on only its text
            if isinstance(error, duckdb.Error | pa.ArrowException):
                raise ToolError(self._explained(error)) from None
            raise
        except KeyboardInterrupt:
            # Without more rows most statements end by themselves; only one that computes on is interrupted,
            # since DuckDB's threads may hold what is closed if they read at that moment.
            self._source.stop()
            if wait([running], _ENDS_BY_ITSELF_S).not_done:
                self._database.interrupt()
                wait([running], _INTERRUPT_S)
            raise

    def run(self, statement: str) -> pa.RecordBatchReader:
        """Return the rows of a statement; they are computed while they are read.

        Raises:
            duckdb.Error: DuckDB refuses the statement.
            ToolError: the names of two topics differ only in case.
        """
        self._statement = statement
        self._topics = self._source.topics()
        for topic in topics_named(statement, self._topics):
            self._source.ranges(topic)  # the end of each topic is the one before the first row
            self._tables[topic] = TopicTable(topic, self._source, self._columns)
            self._database.register(topic, self._tables[topic])
        return self._database.sql(statement).to_arrow_reader(_ROWS_PER_BATCH)

    def _explained(self, error: Exception) -> str:
        text = " ".join(str(error).partition("\n\nLINE ")[0].split())
        if isinstance(error, duckdb.CatalogException) and (found := _NO_TABLE.search(text)):
            name = found[1]
            if name in self._topics:
                return f'the name of topic {name} needs double quotes: "{name}"'
            return f"topic {name} does not exist{did_you_mean(name, self._topics, DATA_CUTOFF)}"
        if isinstance(error, duckdb.ParserException):
            if _OFFSET.search(self._statement):
                text += '; offset is a word of SQL: write "offset" in double quotes, or t.offset'
            elif _DASH_IN_NAME.search(self._statement):
                text += "; names with other characters than letters, digits and _ need double quotes"
        if isinstance(error, duckdb.PermissionException):
            text += "; --external-access allows it"
        return text
