"""The programs of the page on schedulers call commands that exist, and read fields that these print.

The packages of the schedulers are not installed here: stand-ins for the few names that the programs use run
them, against a command that prints what `kalda` prints.
"""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

pytest.importorskip("sqlglot")

from kalda.command import errors
from kalda.common.types import TopicPartition
from kalda.pipelines.engine.status import PipelineStatus, RunState
from kalda.pipelines.ledger.audit import AuditReport, PartitionAudit
from kalda.pipelines.spec.reference import page as reference_page
from kalda.tools.pipeline.audit import _json as audit_json
from kalda.tools.pipeline.group import pipeline

PAGE = (Path(__file__).resolve().parents[3] / "docs/how-to/schedule-pipelines.md").read_text(encoding="utf-8")
KALDA = "/opt/kalda/bin/kalda"


def block(first_line: str, language: str = "python") -> str:
    """Return the block of code that begins with a line."""
    (found,) = re.findall(
        rf"^```{language}\n({re.escape(first_line)}\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
    )
    return str(found)


def check_command(line: str) -> None:
    """Parse a command line as `kalda pipeline` does."""
    command, noun, verb, *arguments = shlex.split(line)
    assert (True, "pipeline") == (command.endswith("kalda"), noun), line
    pipeline.commands[verb].make_context(verb, arguments)


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """Return a stand-in for the command, which prints documents of one pipeline and keeps its arguments."""
    status = asdict(PipelineStatus("orders_bronze", "topic to table", "direct", "lake.orders", lag=0))
    totals = dict.fromkeys(("records", "rows_out", "dlq", "filtered", "gaps", "late"), 0)
    partition = PartitionAudit(TopicPartition("orders", 0), 0, 7, totals, 1, 0)
    report = AuditReport("orders_bronze", "lake.orders", (partition,), (), 7, None)
    statuses = {"pipelines": [status | {"is_responding": True, "is_dead": False}]}
    documents = {"status": statuses, "once": {"pipelines": [status]}, "audit": [audit_json(report)]}
    path = tmp_path / "kalda"
    path.write_text(
        f"#!{sys.executable}\nimport json, pathlib, sys\n"
        f"with pathlib.Path({str(tmp_path / 'calls')!r}).open('a') as calls:\n"
        "    calls.write(json.dumps(sys.argv[1:]) + '\\n')\n"
        f"code = pathlib.Path({str(tmp_path / 'code')!r})\n"
        f"print(json.dumps(json.loads({json.dumps(documents)!r}).get(sys.argv[2])))\n"
        "print('kalda: a reason', file=sys.stderr)\n"
        "sys.exit(int(code.read_text()) if code.exists() else 0)\n"
    )
    path.chmod(0o755)
    return path


def calls(command: Path) -> list[list[str]]:
    return [json.loads(line) for line in command.with_name("calls").read_text().splitlines()]


class BashOperator:
    """Runs its command at once."""

    def __init__(self, *, task_id: str, bash_command: str, retries: int = 3) -> None:
        subprocess.run(["bash", "-c", bash_command], check=True, stdout=subprocess.DEVNULL)

    def __rshift__(self, other: object) -> object:
        return other


def as_it_is(*functions: Callable[..., Any], **_: object) -> Any:
    """Decorate a function by nothing."""
    return functions[0] if functions else as_it_is


def test_the_dag_of_airflow_runs(command: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sdk, bash = ModuleType("airflow.sdk"), ModuleType("airflow.providers.standard.operators.bash")
    vars(sdk).update(dag=as_it_is, task=as_it_is)
    vars(bash).update(BashOperator=BashOperator)
    monkeypatch.setitem(sys.modules, sdk.__name__, sdk)
    monkeypatch.setitem(sys.modules, bash.__name__, bash)
    exec(block("# dags/orders.py").replace(KALDA, str(command)), {})
    assert ["validate", "once", "status", "audit"] == [each[1] for each in calls(command)]
    for each in calls(command):
        check_command(shlex.join(["kalda", *each]))


class FailureError(Exception):
    """Stands for `dagster.Failure`."""

    def __init__(self, description: str, *, allow_retries: bool = True) -> None:
        super().__init__(description)
        self.allow_retries = allow_retries


def result(**given: object) -> SimpleNamespace:
    return SimpleNamespace(**given)


def test_the_asset_and_the_check_of_dagster_run(command: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dagster = ModuleType("dagster")
    vars(dagster).update(
        asset=as_it_is,
        asset_check=as_it_is,
        Failure=FailureError,
        **dict.fromkeys(("RetryPolicy", "MaterializeResult", "AssetCheckResult", "Definitions"), result),
    )
    monkeypatch.setitem(sys.modules, "dagster", dagster)
    names: dict[str, Any] = {}
    code = block("# orders.py").replace(KALDA, str(command))
    exec(compile(code, "orders.py", "exec", dont_inherit=True), names)

    metadata = names["lake_orders"]().metadata
    assert ({"orders-0": 7}, 7, 0) == (metadata["offsets"], metadata["dagster/row_count"], metadata["lag"])
    assert names["every_record_is_accounted_for"]().passed
    for each in calls(command):
        check_command(shlex.join(["kalda", *each]))

    for exit_code, may_retry in ((errors.FAILURE, True), (errors.USAGE, False)):
        command.with_name("code").write_text(str(exit_code))
        with pytest.raises(FailureError, match="a reason") as caught:
            names["lake_orders"]()
        assert may_retry == caught.value.allow_retries


def test_all_commands_of_the_page_exist() -> None:
    lines = re.findall(r"(?<=[`/ ])(?:[\w/]*/)?kalda pipeline [\w-]+[^`\n{]*", PAGE)
    assert len(lines) > 5
    for each in lines:
        verb = shlex.split(each)[2]
        assert verb in pipeline.commands, each
        assert set(re.findall(r"--[\w-]+", each)) <= {
            option for param in pipeline.commands[verb].params for option in param.opts
        }, each
    (cron,) = re.findall(r"^\S+ \* \* \* \* (.*)$", PAGE, re.MULTILINE)
    check_command(cron)


def test_fields_and_exit_codes_are_those_of_the_program() -> None:
    fields_table = PAGE[PAGE.index("| field |") : PAGE.index("`kalda pipeline audit --json` prints")]
    rows = [each.split("|")[1] for each in fields_table.splitlines() if each.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    known = {each.name for each in fields(PipelineStatus)} | {"is_responding", "is_dead"}
    assert named <= known, named - known
    (states,) = re.findall(r"^\| `state` \| (.*) \|$", PAGE, re.MULTILINE)
    assert [each.value for each in RunState] == re.findall(r"`(\w+)`", states)
    codes = re.findall(r"^\| (\d) \|", PAGE, re.MULTILINE)
    assert ["0", str(errors.FAILURE), str(errors.USAGE)] == codes
    text = reference_page()
    table = text[text.index("## Exit codes") :]
    listed = {
        name
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`([\w-]+)`", row)
    }
    missing = pipeline.commands.keys() - listed - {"init", "schema", "export-sdp"}
    assert set() == missing


def test_the_files_of_dbt_are_yaml() -> None:
    plugins = yaml.safe_load(block("# profiles.yml", "yaml"))["shop"]["outputs"]["dev"]["plugins"]
    tables = yaml.safe_load(block("# models/sources.yml", "yaml"))["sources"][0]["tables"]
    used = {each["config"]["plugin"] for each in tables if "plugin" in each["config"]}
    assert {each["module"] for each in plugins} == used
    assert "orders" in {each["name"] for each in tables}
