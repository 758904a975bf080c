"""`kalda pipeline dlq`: lists the dead letters of a pipeline, replays them and drops them."""

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.option_types import INT32_MAX, Integer
from kalda.command.output import Json
from kalda.command.tables import Cell, Table
from kalda.common.log_text import counted
from kalda.tools.bytes_text import json_field, shortened
from kalda.tools.pipeline.arguments import chosen, read_file
from kalda.tools.pipeline.noun import pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kalda.pipelines.dlq.letters import Letter
    from kalda.pipelines.dlq.replay import LetterFilter, OpenLetter

dlq: Final = noun("List, replay and drop the records that a pipeline could not process.")
pipeline.add_command(dlq, "dlq")

_STAGES: Final = ("decode", "transform", "expect", "target")
_KEY_CHARACTERS: Final = 20
_VALUE_CHARACTERS: Final = 60


def _selection(function: "Callable[..., None]") -> "Callable[..., None]":
    """Add the options that choose letters."""
    for option in (
        click.option(
            "--stage", type=click.Choice(_STAGES), multiple=True, help="Only of this stage; repeatable."
        ),
        click.option("--cause", metavar="CLASS", multiple=True, help="Only of this error class; repeatable."),
        click.option("--until", metavar="TIME", help="Only letters written before; as --since."),
        click.option(
            "--since",
            metavar="TIME",
            help="Only letters written since: 2026-11-22T10:00:00Z, or an age like 2h.",
        ),
    ):
        function = option(function)
    return function


_file = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
_name = click.argument("name", metavar="PIPELINE")


@command("list", dlq)
@_file
@_name
@_selection
@click.option(
    "--limit", type=Integer(0, INT32_MAX), default=20, metavar="N", help="Letters to show. Default: 20."
)
def list_letters(
    tool: Tool,
    file: Path,
    name: str,
    since: str | None,
    until: str | None,
    cause: tuple[str, ...],
    stage: tuple[str, ...],
    limit: int,
) -> None:
    """List the open dead letters of PIPELINE in FILE: how many for each cause, and the first ones.

    Open are letters that were neither replayed nor dropped. Long keys and values are cut, with --json not.
    """
    from kalda.pipelines.dlq.replay import open_letters

    properties, topic = _place(tool, file, name)
    meant = _filter(since, until, cause, stage)
    causes: Counter[tuple[str, str]] = Counter()
    shown: list[OpenLetter] = []
    for each in open_letters(properties, topic):
        if meant.means(each.letter):
            causes[(each.letter.stage, each.letter.error_class) if each.letter else ("-", "-")] += 1
            if len(shown) < limit:
                shown.append(each)
    counts = [(stage, error_class, count) for (stage, error_class), count in causes.most_common()]
    document: Json = {
        "pipeline": name,
        "topic": topic,
        "open": sum(causes.values()),
        "causes": [{"stage": s, "errorClass": c, "count": n} for s, c, n in counts],
        "letters": [_letter_json(each) for each in shown],
    }
    if not counts:
        tool.output.result(document, f"{topic} has no open dead letter.")
        return
    rows = [_letter_row(each, topic) for each in shown]
    columns = ["PARTITION", "OFFSET", "KEY", "VALUE", "STAGE", "CAUSE", "MESSAGE"]
    tool.output.result(
        document,
        Table(
            ["STAGE", "CAUSE", "COUNT"],
            counts,
            f"{counted(sum(causes.values()), 'open dead letter')} in {topic}:",
        ),
        Table(columns, rows, f"The first {len(rows)}:"),
    )


@command("retry", dlq)
@_file
@_name
@_selection
def retry_letters(
    tool: Tool,
    file: Path,
    name: str,
    since: str | None,
    until: str | None,
    cause: tuple[str, ...],
    stage: tuple[str, ...],
) -> None:
    """Replay the open dead letters of PIPELINE in FILE, each exactly once.

    The records go to the topic <dead-letter topic>.retry, which the pipeline reads beside its own topics: at
    once when it is running, else with the next `kalda pipeline run` or `once`. A record that fails again is a
    new dead letter that still names its first place. A letter without its record, which was too large for the
    topic, stays.
    """
    from kalda.pipelines.dlq.replay import create_topics, replay

    properties, topic = _place(tool, file, name)
    create_topics(properties, topic)
    done = replay(properties, topic, _filter(since, until, cause, stage))
    tool.output.result(
        {"pipeline": name, "topic": topic, "replayed": done.taken, "open": done.kept},
        f"{counted(done.taken, 'dead letter')} of {topic} replayed, {done.kept} left.",
    )


@command("drop", dlq)
@_file
@_name
@_selection
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def drop_letters(
    tool: Tool,
    file: Path,
    name: str,
    since: str | None,
    until: str | None,
    cause: tuple[str, ...],
    stage: tuple[str, ...],
    yes: bool,
) -> None:
    """Close the open dead letters of PIPELINE in FILE without replaying them.

    The records stay in the topic, but no command replays them any more.
    """
    import sys

    from kalda.command.output import is_terminal
    from kalda.pipelines.dlq.replay import drop, open_letters

    properties, topic = _place(tool, file, name)
    meant = _filter(since, until, cause, stage)
    if not yes:
        if not is_terminal(sys.stdin):
            raise ToolUsageError(
                "drop asks before it closes dead letters: run it on a terminal, or add --yes"
            )
        count = sum(meant.means(each.letter) for each in open_letters(properties, topic))
        click.confirm(f"Drop {counted(count, 'dead letter')} of {topic}?", abort=True, err=True)
    done = drop(properties, topic, meant)
    tool.output.result(
        {"pipeline": name, "topic": topic, "dropped": done.taken, "open": done.kept},
        f"{counted(done.taken, 'dead letter')} of {topic} dropped, {done.kept} left.",
    )


def _place(tool: Tool, file: Path, name: str) -> "tuple[Mapping[str, str], str]":
    """Return the settings of the cluster with a pipeline's dead letters, and their topic."""
    from kalda.pipelines.spec.model import TopicSource

    read = read_file(tool, file)
    (spec,) = chosen(read, [name])
    if not isinstance(spec.source, TopicSource):
        raise ToolError(f"{name} reads no topic, so it has no dead letters")
    return read.cluster(spec.source.cluster).properties, spec.dlq_topic


def _filter(
    since: str | None, until: str | None, causes: tuple[str, ...], stages: tuple[str, ...]
) -> "LetterFilter":
    from kalda.pipelines.dlq.replay import LetterFilter

    return LetterFilter(
        since_ms=None if since is None else _time_ms("--since", since),
        until_ms=None if until is None else _time_ms("--until", until),
        causes=frozenset(causes),
        stages=frozenset(stages),
    )


def _time_ms(option: str, text: str) -> int:
    import re
    from datetime import UTC, datetime

    units = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    if (match := re.fullmatch(r"(\d{1,9})([smhd])", text)) is not None:
        return round(time.time() * 1000) - int(match[1]) * units[match[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ToolUsageError(
            f"{option}={text!r} is no time; write 2026-11-22T10:00:00Z, or an age: 30m, 2h, 1d"
        ) from error
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _message(letter: "Letter") -> str:
    if letter.omitted is None:
        return letter.error_message
    return f"{letter.error_message} (the letter has no room for the record of {letter.omitted} bytes)"


def _letter_row(each: "OpenLetter", topic: str) -> list[Cell]:
    content = [shortened(each.key, _KEY_CHARACTERS), shortened(each.value, _VALUE_CHARACTERS)]
    letter = each.letter
    if letter is None:
        return [f"{topic}-{each.partition}", each.offset, *content, "-", "-", "no headers of a dead letter"]
    place: list[Cell] = [f"{letter.topic}-{letter.partition}", letter.offset]
    return [*place, *content, letter.stage, letter.error_class, _message(letter)]


def _letter_json(each: "OpenLetter") -> Json:
    letter = each.letter
    record: dict[str, Json] = {
        "dlqPartition": each.partition,
        "dlqOffset": each.offset,
        **json_field("key", each.key),
        **json_field("value", each.value),
    }
    if letter is None:
        return record
    return record | {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "stage": letter.stage,
        "errorClass": letter.error_class,
        "errorMessage": letter.error_message,
        "schemaId": letter.schema_id,
        "batch": letter.batch,
        "timeMs": letter.time_ms,
        "retries": letter.retries,
        "omittedBytes": letter.omitted,
    }
