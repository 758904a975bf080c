"""The command `kalda pipeline audit`: does the ledger agree with the log and the tables?"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kalda.command.command import Tool, command
from kalda.command.errors import PartialFailureError, ToolUsageError
from kalda.command.output import Json
from kalda.command.tables import Cell, Table
from kalda.common.log_text import counted
from kalda.tools.pipeline.arguments import chosen, pipeline_arguments, read_file
from kalda.tools.pipeline.noun import pipeline

if TYPE_CHECKING:
    from kalda.pipelines.ledger.audit import AuditReport


@command("audit", pipeline)
@pipeline_arguments
@click.option("--recount", is_flag=True, help="Read the topics again and count their records.")
@click.option("--values", is_flag=True, help="Read the tables whole and compare the values of each column.")
def audit(tool: Tool, file: Path, names: tuple[str, ...], recount: bool, values: bool) -> None:
    """Check that each offset a pipeline read is accounted for, and that its table has those rows.

    Compares the ledger (topic __kalda_audit) with itself, with the log and with the table: ranges join, every
    record is a row, a dead letter or filtered, and the table has as many rows. Exits with 1 if not.
    """
    from kalda.pipelines.ledger.evidence import audit_pipeline
    from kalda.pipelines.ledger.topic import read_ledger
    from kalda.pipelines.spec.model import TopicSource
    from kalda.pipelines.sql.nodes import MalformedSqlError

    pipelines = read_file(tool, file)
    reports = []
    for spec in chosen(pipelines, names):
        if not isinstance(spec.source, TopicSource):
            continue
        properties = pipelines.cluster(spec.source.cluster).properties
        ledger = read_ledger(properties)
        try:
            reports.append(audit_pipeline(spec, properties, ledger, recount=recount, values=values))
        except MalformedSqlError as error:
            raise ToolUsageError(f"{spec.name}: {error}") from error
    tool.output.result([_json(each) for each in reports], *_parts(reports))
    failures = [finding for each in reports for finding in each.findings]
    if failures:
        tool.output.flush()
        for failure in failures:
            tool.output.failure(failure)
        raise PartialFailureError


def _parts(reports: "list[AuditReport]") -> list[Table | str]:
    parts: list[Table | str] = []
    for report in reports:
        rows: list[list[Cell]] = [
            [
                str(each.topic_partition),
                each.batch_count,
                each.start,
                each.end,
                *(each.totals[name] for name in ("records", "rows_out", "dlq", "filtered", "gaps")),
                each.lag,
            ]
            for each in report.partitions
        ]
        parts.append(f"{report.pipeline} → {report.target}: {_verdict(report)}")
        columns = (
            "PARTITION",
            "BATCHES",
            "START",
            "END",
            "RECORDS",
            "ROWS",
            "DLQ",
            "FILTERED",
            "GAPS",
            "LAG",
        )
        parts.append(Table(columns, rows))
    return parts


def _verdict(report: "AuditReport") -> str:
    from kalda.pipelines.ledger.completeness import describe

    text = "everything agrees" if report.is_good else counted(len(report.findings), "finding")
    if report.table_rows is not None:
        text += f", {counted(report.table_rows, 'row')} in the table"
    if report.not_compared is not None:
        text += f"; {report.not_compared}"
    if report.completeness is not None:
        text += f", {describe(report.completeness)}"
    return text


def _json(report: "AuditReport") -> Json:
    completeness = report.completeness
    return {
        "pipeline": report.pipeline,
        "target": report.target,
        "good": report.is_good,
        "findings": list(report.findings),
        "table_rows": report.table_rows,
        "not_compared": report.not_compared,
        "complete_until_ms": None if completeness is None else completeness.until_ms,
        "complete_share": None if completeness is None else completeness.share,
        "partitions": [
            {
                "topic": each.topic_partition.topic,
                "partition": each.topic_partition.partition,
                "batches": each.batch_count,
                "start": each.start,
                "end": each.end,
                "lag": each.lag,
                **each.totals,
            }
            for each in report.partitions
        ],
    }
