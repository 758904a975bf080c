"""How a pipeline is executed, and why."""

from pathlib import Path

import pytest

pytest.importorskip("sqlglot")

from kalda.pipelines.engine.planner import TopicPlan, plans_of
from kalda.pipelines.spec.errors import PipelineFileError
from kalda.pipelines.spec.model import Execution
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
        "startingOffsets": "earliest",
    } == found.options
