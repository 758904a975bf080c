"""How a pipeline is executed, and why."""

from pathlib import Path

import pytest

pytest.importorskip("sqlglot")

from kalda.pipelines.engine.planner import TopicPlan, plans_of
from kalda.pipelines.engine.validation import unknown_columns
from kalda.pipelines.spec.errors import PipelineFileError
from kalda.pipelines.spec.model import Execution, TableSpec
from kalda.pipelines.spec.parser import parse_pipeline_file


def double(rows: object) -> object:
    """A step in Python that the files below name."""
    return rows


JSON = "{format: json, schema: 'id bigint, amount double'}"


def plan(more: str = "", top: str = "", value: str = JSON) -> TopicPlan:
    text = (
        f"name: n\nstorage: state\n{top}\npipelines:\n  - name: a\n    from: {{topic: t, value: {value}, "
        f"keep: [offset]}}\n    to: {{table: u}}\n{more}"
    )
    file = parse_pipeline_file(text, "p.yml", directory=Path("/srv"), variables={})
    return plans_of(file)[0]


def test_without_a_transform_rows_stay_in_python() -> None:
    """The shortest way from a topic to a table."""
    found = plan()
    assert (Execution.DIRECT, "there is no transform") == (found.execution, found.reason)
    assert found.schema is not None
    assert ["id", "amount", "offset"] == found.schema.names


def test_a_projection_with_a_filter_is_direct() -> None:
    """And the plan knows the target's columns before a record is read."""
    found = plan('    transform: ["select id, amount * 2 as twice where amount > 0"]\n')
    assert found.is_direct
    assert found.schema is not None
    assert ["id", "twice"] == found.schema.names


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ('    transform: ["select count(*) n from input"]\n', "needs all rows of a batch (count)"),
        ('    transform: ["select soundex(id) s"]\n', "soundex"),
        ("    execution: spark\n", "the file says so"),
    ],
)
def test_other_transforms_run_in_spark(more: str, reason: str) -> None:
    """`validate` shows the reason."""
    found = plan(more)
    assert Execution.SPARK is found.execution
    assert reason in found.reason


def test_another_time_zone_runs_in_spark() -> None:
    """Functions of time depend on it."""
    found = plan(top="spark: {settings: {spark.sql.session.timeZone: Europe/Berlin}}")
    assert Execution.SPARK is found.execution


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.sql.ansi.enabled", "'false'"),
        ("spark.sql.caseSensitive", "'true'"),
        ("spark.sql.legacy.timeParserPolicy", "LEGACY"),
        ("spark.sql.timestampType", "TIMESTAMP_NTZ"),
    ],
)
def test_settings_that_change_what_sql_means_run_in_spark(setting: str, value: str) -> None:
    """Direct execution would ignore them, so that the rows depended on the way of execution."""
    top = f"spark: {{settings: {{{setting}: {value}}}}}"

    assert Execution.SPARK is plan("    transform: [select id]\n", top=top).execution
    assert (
        f"{setting}={value.strip(chr(39))} changes what SQL means"
        == plan("    expect: {e: id > 1}\n", top=top).reason
    )
    assert plan(top=top).is_direct
    assert plan(
        "    transform: [select id]\n", top="spark: {settings: {spark.sql.ansi.enabled: 'TRUE'}}"
    ).is_direct


def test_a_function_that_kalda_lacks_shows_without_columns() -> None:
    """The pipeline would stop with its first batch, and stay stopped."""
    for more in (
        "    transform: [\"select *, soundex('x') as h\"]\n",
        "    expect: {e: soundex(id) = 'x'}\n",
    ):
        found = plan(more, value="json")
        assert (Execution.SPARK, "the function soundex is not evaluated by Kalda") == (
            found.execution,
            found.reason,
        )


@pytest.mark.parametrize(
    ("step", "execution"),
    [
        ("select id, meta.ts as t, 'x' as s, 1 as n", Execution.DIRECT),
        ("select * where a is not null and not b", Execution.DIRECT),
        ("select * except (a)", Execution.DIRECT),
        ("select upper(name) as n", Execution.SPARK),
        ("select * where a > 0", Execution.SPARK),
        ("select cast(a as string) as a", Execution.SPARK),
        ("select case when a then b end as c", Execution.SPARK),
        ("select null as c", Execution.SPARK),
    ],
)
def test_what_depends_on_unknown_types_runs_in_spark(step: str, execution: Execution) -> None:
    """A type that Kalda does not evaluate would come with some batch and stop the pipeline."""
    more = f'    transform: ["{step}"]\n'

    assert execution is plan(more, value="json").execution
    assert plan(f"{more}    execution: direct\n", value="json").is_direct


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('    transform: ["selec"]\n', "p.yml:8:17: 'selec' is not allowed: a step begins with select"),
        ("    transform: [{python: 'kalda.nothing:fn'}]\n", "kalda.nothing:fn cannot be imported"),
        (
            "    transform: [{python: 'operator:neg'}]\n",
            "'pyarrow.lib.RecordBatch'; its batch had no rows, by which its columns are found",
        ),
        ('    expect: {x: "sum(id) > 1"}\n', "sum needs more than one row"),
        (
            '    transform: ["select count(*) n from input"]\n    execution: direct\n',
            "execution: direct is not possible for a",
        ),
    ],
)
def test_faults_have_their_place(more: str, message: str) -> None:
    """Found before Spark starts."""
    with pytest.raises(PipelineFileError) as raised:
        plan(more)
    assert message in str(raised.value)


def test_a_wrong_format_has_its_place() -> None:
    """The message comes from the format."""
    with pytest.raises(PipelineFileError, match=r"p\.yml:6:29: 'jsn' is not a format .did you mean 'json'"):
        plan(value="jsn")


def test_source_options_name_the_group() -> None:
    """So the lag of a pipeline shows in every tool under its name."""
    found = plan()
    assert {
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "kafka.isolation.level": "read_committed",
        "kafka.client.id": "kalda-pipeline-a",
        "kafka.group.id": "kalda-pipeline-a",
        "subscribe": "t,a.dlq.retry",
        "malformedTimestamps": "null",
        "startingOffsets": "earliest",
    } == found.options


def faults(more: str = "", value: str = JSON, source: str = "", to: str = "{table: u}") -> list[str]:
    text = (
        f"name: n\nstorage: state\npipelines:\n  - name: a\n    from: {{topic: t, value: {value}{source}}}\n"
        f"    to: {to}\n{more}"
    )
    file = parse_pipeline_file(text, "p.yml", directory=Path("/srv"), variables={})
    with pytest.raises(PipelineFileError) as caught:
        plans_of(file)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ("    transform: [select idd]\n", "'idd' is not a column; the columns are id, amount"),
        ("    transform: [where id]\n", "'where id' is bigint; a boolean is expected"),
        ("    expect: {e: idd > 1}\n", "expectation e: 'idd' is not a column"),
        ("    transform: [select id as __kalda_offset]\n", "the column __kalda_offset is Kalda's own"),
    ],
)
def test_sql_that_spark_would_refuse_too_is_a_fault_of_the_file(more: str, fault: str) -> None:
    """Otherwise `validate` accepts a misspelled column, and the pipeline fails with its first batch."""
    (found,) = faults(more)
    assert fault in found


def test_a_step_that_does_not_fit_the_columns_is_named_by_its_place() -> None:
    """A transform may have many, and the message need not show the step."""
    found = faults("    transform:\n    - select id\n    - select idd as key\n")
    assert [
        "p.yml:9:7: the transform of a cannot be applied: 'idd' is not a column; the columns are id"
    ] == found
    (found_of_deletes,) = faults(to="{table: u, mode: upsert, keys: [id], deletes: idd > 1}")
    assert ": deletes: 'idd' is not a column" in found_of_deletes


@pytest.mark.parametrize("sql", ["select id as a, a + 1 as b", "select current_user as u", "select ID, user"])
def test_names_that_spark_finds_elsewhere_are_left_to_it(sql: str) -> None:
    """Names of the same select list, and functions without parentheses."""
    assert Execution.SPARK is plan(f"    transform: ['{sql}']\n").execution


@pytest.mark.parametrize(
    ("module", "fault"),
    [
        ("def f(:", "SyntaxError: "),
        ("1 / 0", "ZeroDivisionError: "),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_module_that_cannot_be_imported_is_a_fault(
    module: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the module does: it is the user's, and a traceback names our files first."""
    name = f"steps_{fault[:4].lower()}"
    (tmp_path / f"{name}.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = faults(f"    transform: ['python: {name}:f']\n")
    assert f"the function {name}:f cannot be imported: {fault}" in found


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (
            ", options: {readMode: fast}",
            "p.yml:5:11: from: `readMode`='fast' is none of auto, network, files",
        ),
        (", options: {kafka.fetch.max.bytes: x}", "`fetch.max.bytes`=x is not allowed"),
        (", start: '0001-01-01T00:00:00'", "`startingTimestamp`="),
    ],
)
def test_a_wrong_option_of_the_source_is_a_fault(source: str, fault: str) -> None:
    """The data source checks the options; the file is where they are wrong."""
    (found,) = faults(source=source)
    assert fault in found


@pytest.mark.parametrize(
    ("to", "fault"),
    [
        ("{topic: u}", "p.yml:6:9: to: the rows have no column value; they have id, amount"),
        ("{topic: u, value: json, key: nope}", "p.yml:6:9: to: the rows have no column nope"),
        ("{topic: u, value: jsn}", "'jsn' is not a format to write (did you mean 'json'?)"),
        ("{topic: u, value: debezium-json}", "'debezium-json' is not a format to write"),
        ("{topic: u, value: json, options: {acks: many}}", "p.yml:6:9: to: `kafka.acks`=many"),
    ],
)
def test_a_topic_that_cannot_be_written_is_a_fault(to: str, fault: str) -> None:
    """Otherwise each batch fails, and is tried again, with an error that never passes."""
    (found,) = faults(to=to)
    assert fault in found


def test_the_format_of_a_topic_is_checked_without_columns() -> None:
    """A transform of Spark hides the columns, not the name of the format."""
    (found,) = faults("    transform: [select count(*) n from input]\n", to="{topic: u, value: jsn}")
    assert "'jsn' is not a format to write" in found


def test_the_faults_of_all_pipelines_show_at_once() -> None:
    """A user corrects a file once, not once for each pipeline."""
    entries = "".join(
        f"  - {{name: {n}, from: {{topic: t, value: x{n}}}, to: {{table: {n}}}}}\n" for n in "ab"
    )
    file = parse_pipeline_file(
        f"name: n\nstorage: s\npipelines:\n{entries}", "p.yml", directory=Path("/srv"), variables={}
    )
    with pytest.raises(PipelineFileError) as caught:
        plans_of(file)
    assert ["'xa'", "'xb'"] == [each.message.split()[0] for each in caught.value.faults]


def test_a_registry_that_does_not_answer_is_a_fault_with_its_place() -> None:
    """The plan needs the schema of the subject."""
    options = "registry.url: http://127.0.0.1:1, registry.tries: 1, subject: s"
    (found,) = faults(value=f"{{format: avro-sr, options: {{{options}}}}}")
    assert found.startswith("p.yml:5:29: the schema registry does not answer")


NESTED = "{format: json, schema: 'id bigint, ts timestamp, meta struct<ts: timestamp, id: bigint>'}"


@pytest.mark.parametrize(
    ("to", "fault"),
    [
        (
            "mode: upsert, keys: [meta.id]",
            "keys=meta.id is a field of meta and no column: add `select *, meta.id as ",
        ),
        ("mode: upsert, keys: [id], order_by: meta.ts", "order_by=meta.ts is a field of meta and no column"),
        ("event_time: meta.ts", "event_time=meta.ts is a field of meta and no column"),
        ("partition_by: [day(meta.ts)]", "partition_by=meta.ts is a field of meta and no column"),
        ("partition_by: [nope]", "partition_by: there is no column nope; the rows have id, ts, meta"),
        ("event_time: id", "event_time=id is int64; a timestamp is expected"),
        ("partition_by: [day(id)]", "partition_by has day(id), but 'id' is int64; it must be a timestamp"),
        ("partition_by: [meta]", "partition_by names 'meta' of type struct<"),
        ("partition_by: [day(ts), day(ts)]", "names a field twice"),
        ("mode: upsert, keys: [meta]", "keys of the table u names 'meta' of type struct<"),
        ("mode: upsert, keys: [id], order_by: meta", "order_by of the table u names 'meta' of type struct<"),
    ],
)
def test_a_setting_that_names_no_column_is_a_fault(to: str, fault: str) -> None:
    """Otherwise `validate` accepts it, and each batch fails."""
    (found,) = faults(value=NESTED, to=f"{{table: u, {to}}}")
    assert fault in found


def test_an_option_that_s3_lacks_is_a_fault() -> None:
    (found,) = faults(to="{table: 's3://lake/u', options: {aws_region: x}}")
    assert "options has aws_region, which is no option of S3. Did you mean s3.region?" in found


@pytest.mark.parametrize("partition", ["day(ts)", "hour(ts)", "month(ts)", "year(ts)", "id"])
def test_a_table_is_divided_by_a_part_of_a_time(partition: str) -> None:
    text = (
        f"name: n\nstorage: state\npipelines:\n  - {{name: a, from: {{topic: t, value: {NESTED}}}, "
        f"to: {{table: u, partition_by: [{partition}]}}}}\n"
    )
    (found,) = plans_of(parse_pipeline_file(text, "p.yml", directory=Path("/srv"), variables={}))

    assert isinstance(found.spec.target, TableSpec)
    assert (partition,) == found.spec.target.partition_by


def test_what_only_data_shows_is_said() -> None:
    """A name that no check has seen must not look checked."""
    text = (
        "name: n\nstorage: state\npipelines:\n  - {name: a, from: {topic: t, value: json}, "
        "to: {table: u, mode: upsert, keys: [id], order_by: meta.ts}}\n"
    )
    (found,) = plans_of(parse_pipeline_file(text, "p.yml", directory=Path("/srv"), variables={}))

    assert found.schema is None
    assert (
        "the columns are unknown until data shows them, as the value has no schema, and whether they have "
        "those of keys id; order_by meta.ts"
    ) == unknown_columns(found)
