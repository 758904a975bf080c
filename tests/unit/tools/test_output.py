"""The output port: one result, three forms."""

import io
import json
import os
import subprocess
import sys

import pytest

from kalda.command.output import Form, Output, ProgressLines, escape_unencodable
from kalda.command.tables import Table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def output(form: Form) -> tuple[Output, io.StringIO, io.StringIO]:
    stdout, stderr = Terminal() if form is Form.TERMINAL else io.StringIO(), io.StringIO()
    return Output(form, stdout, stderr), stdout, stderr


def show(form: Form) -> tuple[str, str]:
    port, stdout, stderr = output(form)
    port.result({"topics": ["[a]"]}, "One topic:", Table(("TOPIC",), [("[a]",)]))
    port.item({"offset": 1}, "offset 1")
    port.note("remark")
    return stdout.getvalue(), stderr.getvalue()


def test_a_pipe_gets_text_and_remarks_go_to_stderr() -> None:
    assert ("One topic:\nTOPIC\n[a]\noffset 1\n", "remark\n") == show(Form.PLAIN)


@pytest.mark.parametrize("form", [Form.PLAIN, Form.TERMINAL])
def test_without_rows_there_is_no_heading_but_a_remark(form: Form) -> None:
    """A heading alone leaves open whether something is missing."""
    port, stdout, stderr = output(form)
    port.result({}, Table(("TOPIC",), [], empty="There are no topics."), Table(("GROUP",), []))

    assert ("", "There are no topics.\n") == (stdout.getvalue(), stderr.getvalue())


def test_json_is_one_line_for_a_document_and_has_no_remarks() -> None:
    text, remarks = show(Form.JSON)

    assert [{"topics": ["[a]"]}, {"offset": 1}] == [json.loads(line) for line in text.splitlines()]
    assert "" == remarks


def test_a_terminal_gets_a_table_whose_cells_are_no_markup() -> None:
    """rich would take `[a]` for a style and print nothing."""
    text, _ = show(Form.TERMINAL)

    assert "[a]" in text
    assert "─" in text


def test_an_error_is_one_line_whatever_a_peer_sent() -> None:
    port, _, stderr = output(Form.PLAIN)
    port.failure("topic a: two\nlines")

    assert "kalda: topic a: two\\nlines\n" == stderr.getvalue()


def test_progress_without_a_terminal_is_a_line_now_and_then() -> None:
    now, lines = [0.0], list[str]()
    progress = ProgressLines(lines.append, "Moving", 10, "partitions", lambda: now[0])
    for second in range(12):
        now[0] = float(second)
        progress.update(second)

    assert ["Moving: 5 of 10 partitions", "Moving: 10 of 10 partitions"] == lines


def test_progress_on_a_terminal_is_a_bar() -> None:
    stderr = Terminal()
    with Output(Form.PLAIN, io.StringIO(), stderr).progress("Moving [x]", 4, "partitions") as bar:
        bar.update(3)
        bar.update(4, total=4)

    assert "Moving [x]" in stderr.getvalue()
    assert "4/4" in stderr.getvalue()


@pytest.mark.parametrize(
    ("stdout", "expected"),
    [
        (">/dev/full", "kalda: stdout cannot be written: No space left on device\n"),
        (">&-", "kalda: stdout is closed: there is nowhere to write results to\n"),
    ],
)
def test_a_stdout_that_cannot_be_written_is_one_line(stdout: str, expected: str) -> None:
    """The interpreter flushes stdout once more when it ends, which must not fail again."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = f"{sys.executable} -m kalda completion bash {stdout}"

    done = subprocess.run(
        ["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=60, check=False
    )

    assert (1, expected) == (done.returncode, done.stderr)


@pytest.mark.parametrize(("width", "is_drawn"), [(40, True), (20, False)])
def test_a_terminal_too_narrow_for_the_headings_gets_plain_lines(
    width: int, is_drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns of two letters are unreadable; whole lines, which the terminal wraps, are not."""
    monkeypatch.setenv("COLUMNS", str(width))
    port, stdout, _ = output(Form.TERMINAL)

    port.result({}, Table(("TOPIC", "PARTITION", "LEADER"), [("a-topic-with-a-name", 12, 3)]))

    assert is_drawn == ("─" in stdout.getvalue())
    assert is_drawn != ("a-topic-with-a-name         12       3\n" in stdout.getvalue())
    assert "PARTITION" in stdout.getvalue()


@pytest.mark.parametrize("encoding", ["ascii", "iso8859-1", "utf-8"])
@pytest.mark.parametrize("form", Form)
def test_no_text_is_too_much_for_the_encoding_of_stdout(form: Form, encoding: str) -> None:
    """A group's name can be any text, and a locale can have another encoding than UTF-8."""
    names = ["\u00e9 \u2192 \U0001f600", "\udcff"]
    raw = io.BytesIO()
    stdout = io.TextIOWrapper(raw, encoding=encoding)
    escape_unencodable(stdout, None)
    port = Output(form, stdout, stdout)

    port.result(names, Table(("GROUP",), [(name,) for name in names]))
    port.item(names, " ".join(names))
    port.note(names[0])
    port.flush()

    if form is Form.JSON:
        assert [names, names] == [json.loads(line) for line in raw.getvalue().decode(encoding).splitlines()]
    assert (b"\\u2192" in raw.getvalue()) is (encoding != "utf-8")
