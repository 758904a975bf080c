"""The output port: a command hands its result here once, and the port decides what the reader sees.

Three forms: rich tables on a terminal, aligned text in a pipe, and JSON. Results go to stdout. Remarks and
progress go to stderr, so that a pipe carries results only. `rich` is imported when a table or a bar is drawn
on a terminal, never before: it costs as much time as everything else of a small command.
"""

import codecs
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from io import TextIOWrapper
from typing import Final, Protocol, TextIO, TypeAlias

from kalda.command.errors import ToolError
from kalda.command.tables import Table, plain_lines, printable
from kalda.common.json_text import strict_json

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

_PROGRESS_LINES_INTERVAL_S: Final = 5.0
"""How often progress writes a line where no bar can be drawn: a log of a long run stays readable."""


class Form(Enum):
    """The form of output, by the reader of stdout."""

    TERMINAL = auto()
    PLAIN = auto()
    JSON = auto()


class Progress(Protocol):
    """A bar or lines that show how far a command is."""

    def update(self, completed: int, total: int | None = None) -> None:
        """Show that `completed` units are done, of `total` if that has changed."""


class Output:
    """Where the results of one command go."""

    def __init__(self, form: Form, stdout: TextIO, stderr: TextIO) -> None:
        self.form: Final = form
        self._stdout: Final = stdout
        self._stderr: Final = stderr

    @classmethod
    def of_process(cls, *, is_json: bool) -> "Output":
        """Return the output of this process: JSON if asked for, else what suits stdout.

        Raises:
            ToolError: stdout is closed.
        """
        if sys.stdout is None:
            raise ToolError("stdout is closed: there is nowhere to write results to")
        form = Form.JSON if is_json else Form.TERMINAL if is_terminal(sys.stdout) else Form.PLAIN
        return cls(form, sys.stdout, sys.stderr)

    def result(self, document: Json, *parts: Table | str) -> None:
        """Write the result of a command.

        Args:
            document: what ``--json`` prints, as one line.
            parts: what the other forms print: tables, and lines of text between them.
        """
        empty: list[str] = []
        with _written_to_stdout():
            if self.form is Form.JSON:
                self._stdout.write(self._json_line(document))
                return
            for part in parts:
                if isinstance(part, str):
                    self._stdout.write(f"{printable(part)}\n")
                elif not part.rows:
                    empty += [] if part.empty is None else [part.empty]
                elif self.form is Form.TERMINAL:
                    self._draw(part)
                else:
                    self._stdout.writelines(f"{line}\n" for line in plain_lines(part))
        for remark in empty:
            self.note(remark)

    def item(self, document: Json, line: str) -> None:
        """Write one item of a stream: a JSON line, or a line of text as it is."""
        with _written_to_stdout():
            self._stdout.write(self._json_line(document) if self.form is Form.JSON else f"{line}\n")

    def write_bytes(self, data: bytes) -> None:
        """Write bytes as they are, behind what was written before: records are not text."""
        with _written_to_stdout():
            self._stdout.flush()
            self._stdout.buffer.write(data)

    def note(self, text: str) -> None:
        """Write a remark for people to stderr; there is none with ``--json``."""
        if self.form is not Form.JSON:
            self._stderr.write(f"{printable(text)}\n")
            self._stderr.flush()

    def failure(self, text: str) -> None:
        """Write one error line to stderr, for one of several things; the caller exits with 1 at the end."""
        self._stderr.write(f"kalda: {printable(text)}\n")
        self._stderr.flush()

    def flush(self) -> None:
        """Write what is buffered.

        Raises:
            BrokenPipeError: the reader has gone, as `head` does.
            ToolError: stdout cannot be written for another reason, as no method here can.
        """
        with _written_to_stdout():
            self._stdout.flush()

    @contextmanager
    def progress(self, what: str, total: int, unit: str) -> Iterator[Progress]:
        """Show progress on stderr while the block runs: a bar on a terminal, else a line now and then."""
        if is_terminal(self._stderr):
            from kalda.command.terminal import progress_bar

            with progress_bar(self._stderr, what, total, unit) as bar:
                yield bar
        else:
            yield ProgressLines(self.note, what, total, unit, time.monotonic)

    def _json_line(self, document: Json) -> str:
        # JSON has no other encoding than UTF-8, and its escapes are not those of `escape_unencodable`.
        return json_line(document, is_ascii=not _is_utf8(self._stdout))

    def _draw(self, table: Table) -> None:
        from kalda.command.terminal import draw_table

        draw_table(self._stdout, table)


class ProgressLines:
    """Progress as lines of text, at most one in five seconds."""

    def __init__(
        self, write: Callable[[str], None], what: str, total: int, unit: str, monotonic_s: Callable[[], float]
    ) -> None:
        self._write: Final = write
        self._what: Final = what
        self._total = total
        self._unit: Final = unit
        self._monotonic_s: Final = monotonic_s
        self._next_s = monotonic_s() + _PROGRESS_LINES_INTERVAL_S

    def update(self, completed: int, total: int | None = None) -> None:
        """Write a line when one is due."""
        self._total = self._total if total is None else total
        now = self._monotonic_s()
        if now >= self._next_s:
            self._next_s = now + _PROGRESS_LINES_INTERVAL_S
            self._write(f"{self._what}: {completed} of {self._total} {self._unit}")


@contextmanager
def _written_to_stdout() -> Iterator[None]:
    """Raise `ToolError` where stdout cannot be written, for example because the disk is full."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        # The interpreter flushes what is buffered when it ends, and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise ToolError(f"stdout cannot be written: {error.strerror}") from error


def is_terminal(stream: TextIO) -> bool:
    """Return whether tables and bars can be drawn on a stream."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _is_utf8(stream: TextIO) -> bool:
    return codecs.lookup(stream.encoding or "utf-8").name == "utf-8"


def escape_unencodable(*streams: TextIO | None) -> None:
    """Write characters outside a stream's encoding as escapes, as in ``\\u2192``, instead of failing."""
    for stream in streams:
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def json_line(document: Json, *, is_ascii: bool = False) -> str:
    """Return a document as one line; text that is not ASCII stays readable unless `is_ascii` escapes it."""
    line = strict_json(document, is_spaced=True)
    return f"{json.dumps(json.loads(line)) if is_ascii else line}\n"
