"""What the command line of `kalda sql` may ask for, and what it says without the extra."""

import sys

import pytest
from click.testing import CliRunner

from kalda.command.errors import ToolError
from kalda.tools.sql.command import sql
from kalda.tools.sql.query import topics_named


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--value-schema", "n bigint"], "--value-format=text has no schema and no options"),
        (["--value-format", "bytes", "--value-option", "a=b"], "--value-format=bytes has no schema"),
        (
            ["--value-format", "json", "--value-schema", "n int", "--value-schema-file", "f"],
            "--value-schema and --value-schema-file are both given",
        ),
        (["--value-format", "jsn"], "(did you mean 'json'?)"),
        (["--value-format", "json"], "needs --value-schema or --value-schema-file"),
        (["--value-format", "json", "--value-schema", "n nosuch"], "--value-format=json: "),
        (["--value-format", "avro", "--value-schema-file", "/no/such"], "cannot be read"),
    ],
)
def test_options_are_checked_before_anything_is_sent(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(sql, ["SELECT 1", *arguments], standalone_mode=False)

    assert message in done.stderr
    assert 2 == done.return_value


@pytest.mark.parametrize("package", ["duckdb", "pyarrow"])
def test_a_missing_package_is_named_with_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("kalda.tools.sql.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)

    done = CliRunner().invoke(sql, ["SELECT 1"], standalone_mode=False)

    assert f"kalda sql needs the package {package}; install Kalda with the extra [sql]" in done.stderr
    assert 1 == done.return_value


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT * FROM flights", ["flights"]),
        ('SELECT * FROM "my-carriers.2" JOIN flights USING (key)', ["flights", "key", "my-carriers.2"]),
        ("FROM FLIGHTS", ["flights"]),
        ("SELECT f.key FROM orders f", ["orders"]),
        ("EXPLAIN SELECT flights.key FROM flights", ["flights"]),
        ("SELECT * FROM flights_of_today", []),
        ('SELECT * FROM "my-carriers"', []),
        ("SELECT * FROM Logs", ["Logs"]),
    ],
)
def test_a_statement_names_its_topics(statement: str, expected: list[str]) -> None:
    assert expected == topics_named(
        statement, {"flights", "my-carriers.2", "2", "key", "orders", "logs", "Logs", "e"}
    )


def test_topics_that_differ_only_in_case_are_spelled_exactly() -> None:
    with pytest.raises(ToolError, match="the topics Logs and logs differ only in case"):
        topics_named("SELECT * FROM LOGS", ["logs", "Logs"])
    with pytest.raises(ToolError, match="the topics Logs and logs differ only in case"):
        topics_named("SELECT * FROM logs, Logs", ["logs", "Logs"])
