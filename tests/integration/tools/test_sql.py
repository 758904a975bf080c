"""`kalda sql`: topics as tables, by the program that users run."""

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kalda import Admin, NewTopic, Producer
from kalda.topic_queries.topic_source import ClusterSource
from tests.integration.tools.commands import Commands

BASE_MS = 1_800_000_000_000
"""15 January 2027, 08:00 UTC; later than any retention."""


@pytest.fixture(scope="module")
def topics(kalda: Commands) -> Commands:
    """A broker with flights in three partitions, their carriers, and a topic with an aborted transaction."""
    with Admin(bootstrap_servers=kalda.bootstrap) as admin:
        admin.create_topics([NewTopic("flights", 3), NewTopic("my-carriers.2", 1), NewTopic("payments", 1)])
    with Producer(bootstrap_servers=kalda.bootstrap) as producer:
        for number in range(300):
            value = {"n": number, "carrier": "LH" if number % 3 else "AF"}
            producer.send(
                "flights",
                json.dumps(value).encode(),
                key=b"%d" % (number % 2),
                partition=number % 3,
                timestamp_ms=BASE_MS + number * 1000,
                headers=[("source", b"gate")],
            )
        for code, name in (("LH", "Lufthansa"), ("AF", "Air France")):
            producer.send("my-carriers.2", json.dumps({"name": name}).encode(), key=code.encode())
    with Producer(bootstrap_servers=kalda.bootstrap, transactional_id="payments") as producer:
        producer.init_transactions()
        for is_committed in (True, False, True):
            producer.begin_transaction()
            producer.send("payments", b"good" if is_committed else b"bad")
            producer.flush()  # what is not sent yet is dropped with its transaction
            producer.commit_transaction() if is_committed else producer.abort_transaction()
    return kalda


def rows(kalda: Commands, statement: str, *options: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in kalda("sql", statement, "--json", *options).stdout.splitlines()]


def read_count(kalda: Commands, statement: str) -> int:
    """Return how many records the program says it has read."""
    words = kalda("sql", statement).stderr.replace(";", "").split()
    return int(words[2])


def test_a_topic_is_a_table_with_the_columns_of_its_records(topics: Commands) -> None:
    (row,) = rows(topics, "SELECT * FROM flights t WHERE partition = 2 AND t.offset = 1")

    assert {
        "key": "1",
        "value": '{"n": 5, "carrier": "LH"}',
        "topic": "flights",
        "partition": 2,
        "offset": 1,
        "timestamp": "2027-01-15T08:00:05Z",
        "headers": [{"key": "source", "value": "gate"}],
    } == row


def test_topics_are_joined_by_fields_of_their_values(topics: Commands) -> None:
    found = rows(
        topics,
        "SELECT c.value->>'$.name' AS name, count(*) AS flights FROM flights f "
        """JOIN "my-carriers.2" c ON f.value->>'$.carrier' = c.key GROUP BY ALL ORDER BY flights""",
    )

    assert [{"name": "Air France", "flights": 100}, {"name": "Lufthansa", "flights": 200}] == found


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("true", 300),
        ("partition = 1", 100),
        ("t.offset BETWEEN 10 AND 19", 30),
        ("timestamp >= '2027-01-15 08:04:30'", 30),
        ("timestamp >= '2027-01-15 09:00:00'", 0),
        ("partition = 7", 0),
    ],
)
def test_conditions_limit_what_is_fetched(topics: Commands, condition: str, expected: int) -> None:
    assert expected == read_count(topics, f"SELECT count(*) FROM flights t WHERE {condition}")


def test_a_query_sees_committed_records_only_unless_told_otherwise(topics: Commands) -> None:
    statement = "SELECT value FROM payments"

    assert ["good", "good"] == [row["value"] for row in rows(topics, statement)]
    everything = rows(topics, statement, "--command-property", "isolation.level=read_uncommitted")
    assert ["good", "bad", "good"] == [row["value"] for row in everything]


def test_values_of_json_and_avro_are_structs(topics: Commands, tmp_path: Path) -> None:
    schema = {"type": "record", "name": "Seat", "fields": [{"name": "row", "type": "int"}]}
    (tmp_path / "seat.avsc").write_text(json.dumps(schema))
    with Producer(bootstrap_servers=topics.bootstrap) as producer:
        for number in range(3):
            data = io.BytesIO()
            fastavro.schemaless_writer(data, fastavro.parse_schema(schema), {"row": number})
            producer.send("seats", data.getvalue())

    assert [{"n": 298}, {"n": 299}] == rows(
        topics,
        "SELECT value.n FROM flights WHERE value.n > 297 ORDER BY 1",
        "--value-format=json",
        "--value-schema=n bigint, carrier string",
    )
    assert [{"row": 2}] == rows(
        topics,
        "SELECT value.row FROM seats WHERE value.row > 1",
        "--value-format=avro",
        "--value-schema-file",
        tmp_path / "seat.avsc",
    )


def test_rows_go_to_a_file_in_the_form_that_is_asked_for(topics: Commands, tmp_path: Path) -> None:
    statement = "SELECT t.offset, key FROM flights t WHERE partition = 0 AND t.offset < 2 ORDER BY 1"
    done = topics("sql", statement, "--format", "arrow", "--output", tmp_path / "rows.arrow")
    topics("sql", statement, "--format", "csv", "--output", tmp_path / "rows.csv")

    assert "" == done.stdout
    assert {"offset": [0, 1], "key": ["0", "1"]} == (
        pa.ipc.open_stream(tmp_path / "rows.arrow").read_all().to_pydict()
    )
    assert '"offset","key"\n0,"0"\n1,"1"\n' == (tmp_path / "rows.csv").read_text()
    assert ["offset  key", "     0  0", "     1  1"] == topics("sql", statement).stdout.splitlines()


def test_a_file_that_cannot_be_written_is_one_line(topics: Commands, tmp_path: Path) -> None:
    for path, reason in ((tmp_path, "Is a directory"), (Path("/dev/full"), "No space left on device")):
        done = topics.run("sql", "SELECT * FROM flights", "--format", "csv", "--output", path)

        assert (1, f"kalda: --output={path} cannot be written: {reason}\n") == (done.code, done.stderr)


def test_a_statement_does_not_see_what_is_written_after_its_start(topics: Commands) -> None:
    """Else two tables of one statement, or two scans of one table, would not belong together."""
    with (
        ClusterSource({"bootstrap.servers": topics.bootstrap}) as source,
        Producer(bootstrap_servers=topics.bootstrap) as producer,
    ):
        producer.send("late", b"before").result(30)
        ranges = source.ranges("late")
        producer.send("late", b"after").result(30)

        assert [b"before"] == [each for batch in source.read(ranges) for each in batch["value"].to_pylist()]
        assert ranges == source.ranges("late")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT * FROM flihgts", "kalda: topic flihgts does not exist; did you mean `flights`?"),
        ("SELECT * FROM nosuch", "kalda: topic nosuch does not exist"),
        (
            "SELECT offset FROM flights",
            'offset is a word of SQL: write "offset" in double quotes',
        ),
        ("SELECT * FROM my-carriers.2", "need double quotes"),
        ("SELECT nosuch FROM flights", 'kalda: Binder Error: Referenced column "nosuch" not found'),
        ("SELECT * FROM read_csv('/etc/passwd')", "Cannot access file"),
        ("COPY flights TO 'out.csv'", "--external-access allows it"),
        ("INSTALL httpfs", "--external-access allows it"),
        ("SET enable_external_access = true", "the configuration has been locked"),
        ("SELECT value::INTEGER FROM flights", "kalda: Conversion Error: Could not convert string"),
    ],
)
def test_a_statement_that_cannot_run_is_one_line(topics: Commands, statement: str, message: str) -> None:
    done = topics.run("sql", statement)

    assert (1, "") == (done.code, done.stdout)
    assert message in done.stderr
    assert 1 == len(done.stderr.splitlines())


def test_files_are_read_where_that_is_allowed(topics: Commands, tmp_path: Path) -> None:
    (tmp_path / "carriers.csv").write_text("code,name\nLH,Lufthansa\n")
    statement = f"SELECT name FROM '{tmp_path}/carriers.csv'"

    assert [{"name": "Lufthansa"}] == rows(topics, statement, "--external-access")
