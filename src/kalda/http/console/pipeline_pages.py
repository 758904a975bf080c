"""Serves the pages of Spark queries and pipelines: lag, batches, and dead letters to edit, retry and drop."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from kalda.clients.admin.partitions import OffsetSpec
from kalda.clients.errors import ClientError
from kalda.common.types import TopicPartition
from kalda.http.console import command_lines
from kalda.http.console.changes import Change, ChangeForm, Field, Fields, Form, FormError
from kalda.http.console.listing_pages import Part, listing_page
from kalda.http.console.listings import Cell, Column, Row, listing
from kalda.http.console.pipeline_views import (
    GROUP_PREFIX,
    Batch,
    PipelineRow,
    batches_by_pipeline,
    dead_letter_topic,
    dead_letter_topics,
    pipeline_rows,
)
from kalda.http.console.reading import Reading
from kalda.http.console.record_changes import entered_record, fields_of, record_at, record_fields
from kalda.http.console.texts import UNKNOWN, count_text, counted, line_text, rate_text, time_text
from kalda.http.console.visits import Visit, path_of
from kalda.http.errors import HttpError
from kalda.pipelines.dlq.replay import (
    Handled,
    LetterFilter,
    OpenLetter,
    create_topics,
    drop,
    handled_group,
    open_letters,
    replay,
)
from kalda.pipelines.ledger.audit_record import LEDGER_TOPIC
from kalda.pipelines.ledger.topic import read_ledger
from kalda.pipelines.spec.model import retry_topic

TRAIL: Final = (("Pipelines", "/pipelines"),)
_LETTERS_MAX: Final = 500
_LINE: Final = 120
_COLUMNS: Final = (
    Column("name", "Pipeline or query"),
    Column("state", "Lag", is_number=True),
    Column("rate", "Rate", is_number=True, is_secondary=True),
    Column("batch", "Last batch (UTC)", is_secondary=True),
    Column("dead", "Dead letters", is_number=True),
    Column("reads", "Reads", is_secondary=True),
    Column("writes", "Writes", is_secondary=True),
)


async def pipelines(visit: Visit, reading: Reading) -> Response:
    """List pipelines and queries with their lag, rate and dead letters."""
    found = await _rows(visit, reading)
    rows = [
        Row(
            [
                Cell(
                    each.name,
                    path_of("pipelines", each.name)
                    if each.is_pipeline
                    else path_of("groups", each.group or ""),
                    note="" if each.is_pipeline else "Spark query",
                ),
                Cell(count_text(each.lag), value=each.lag),
                Cell(rate_text(each.rate), value=each.rate),
                Cell(time_text(each.last_ms), value=each.last_ms),
                Cell(
                    count_text(each.dead),
                    f"{path_of('pipelines', each.name)}/letters" if each.dead else "",
                    badge="bad" if each.dead else "",
                    value=each.dead,
                ),
                Cell(", ".join(each.topics)),
                Cell(each.target),
            ]
        )
        for each in found
    ]
    table = listing(
        "/pipelines",
        visit.parameters,
        _COLUMNS,
        rows,
        one="pipeline",
        many="pipelines",
        empty=(
            "No pipelines or Spark queries",
            "They show as soon as one has committed its first batch to this cluster.",
        ),
    )
    return listing_page(
        visit,
        [Part(table)],
        title="Pipelines",
        section="Pipelines",
        command=command_lines.line("pipeline", "status", "pipeline.yml"),
        intro="What Spark queries and pipelines left in this cluster's topics and groups. Whether a driver "
        "is alive is in the storage of its file; the command shows that.",
    )


async def _rows(visit: Visit, reading: Reading) -> list[PipelineRow]:
    caller = visit.caller

    async def read() -> list[PipelineRow]:
        committed, topics = await asyncio.gather(reading.committed(caller), reading.topics(caller))
        names = {each.name for each in topics}
        with_letters = dead_letter_topics(names, committed.offsets)
        dead_topics = [each for each in topics if each.name in with_letters]
        wanted = {partition for offsets in committed.offsets.values() for partition in offsets}
        wanted |= {TopicPartition(each.name, p.partition) for each in dead_topics for p in each.partitions}
        admin = await caller.admin()
        ends, starts = await asyncio.gather(
            admin.list_offsets(dict.fromkeys(sorted(wanted), OffsetSpec.latest()), outcomes=True),
            admin.list_offsets(
                {
                    TopicPartition(each.name, p.partition): OffsetSpec.earliest()
                    for each in dead_topics
                    for p in each.partitions
                },
                outcomes=True,
            ),
        )
        known = {partition: each.offset for partition, each in ends.results.items()}
        dead: dict[str, int] = {}
        for each in dead_topics:
            handled = committed.offsets.get(handled_group(each.name), {})
            for p in each.partitions:
                place = TopicPartition(each.name, p.partition)
                offset = handled.get(place)
                start = starts.results.get(place)
                first = offset.offset if offset is not None else 0 if start is None else start.offset
                dead[each.name] = dead.get(each.name, 0) + max(0, known.get(place, first) - first)
        ledger: dict[str, tuple[str, list[Batch]]] = {}
        if LEDGER_TOPIC in names:
            try:
                contents = await visit.services.background.run(read_ledger, caller.properties)
                ledger = batches_by_pipeline(contents.records)
            except ClientError:
                ledger = {}  # the visitor may see the groups and not the ledger
        return pipeline_rows(committed.offsets, known, dead, ledger)

    return await reading.snapshots.get(caller, "pipelines", read)


async def _row(visit: Visit, reading: Reading) -> PipelineRow:
    name = visit.request.path_params["pipeline"]
    found = next((each for each in await _rows(visit, reading) if each.name == name), None)
    if found is None:
        raise HttpError(404, f"nothing of a pipeline {name} is in this cluster")
    return found


async def pipeline(visit: Visit, reading: Reading) -> Response:
    """Show the batches of a pipeline."""
    row = await _row(visit, reading)
    base = path_of("pipelines", row.name)
    columns = (
        Column("batch", "Batch", is_number=True),
        Column("time", "Committed (UTC)"),
        Column("records", "Records", is_number=True),
        Column("rows", "Rows out", is_number=True),
        Column("dead", "Dead letters", is_number=True),
        Column("filtered", "Filtered", is_number=True, is_secondary=True),
        Column("late", "Late", is_number=True, is_secondary=True),
    )
    table = listing(
        base,
        visit.parameters,
        columns,
        [
            Row(
                [
                    Cell(str(each.number), value=each.number),
                    Cell(time_text(each.committed_ms), value=each.committed_ms),
                    *(
                        Cell(count_text(count), value=count)
                        for count in (each.records, each.rows, each.dead, each.filtered, each.late)
                    ),
                ]
            )
            for each in row.batches
        ],
        one="batch",
        many="batches",
        empty=(
            "No batches in the ledger",
            "A pipeline with ledger: false keeps none, and so does a Spark query.",
        ),
        sort="-time",
    )
    actions = [("Dead letters", f"{base}/letters")] if row.dead is not None else []
    if row.group is not None:
        actions.append(("Group", path_of("groups", row.group)))
    return listing_page(
        visit,
        [Part(table, "Batches", has_search=False)],
        title=row.name,
        section="Pipelines",
        trail=TRAIL,
        command=command_lines.line("pipeline", "status", "pipeline.yml", row.name),
        tiles=[
            ("Lag", count_text(row.lag)),
            ("Rate", rate_text(row.rate), "of the last batches"),
            ("Open dead letters", count_text(row.dead), "", "bad" if row.dead else ""),
            ("Last batch", time_text(row.last_ms), "UTC", "code"),
            ("Writes", row.target or UNKNOWN, "", "code"),
        ],
        actions=actions,
    )


async def letters(visit: Visit, reading: Reading) -> Response:
    """List the open dead letters of a pipeline."""
    name = visit.request.path_params["pipeline"]
    base = path_of("pipelines", name)
    topic = await _topic_of(visit, name)
    found = await _open(visit, topic)
    causes = Counter(
        (each.letter.stage, each.letter.error_class) for each in found if each.letter is not None
    )
    rows = []
    for each in found:
        letter = each.letter
        place = UNKNOWN if letter is None else f"{letter.topic}-{letter.partition}"
        original = (
            ""
            if letter is None
            else f"{path_of('topics', letter.topic)}/records/{letter.partition}/{letter.offset}"
        )
        here = f"{each.partition}:{each.offset}"
        rows.append(
            Row(
                [
                    Cell(
                        str(each.offset),
                        f"{path_of('topics', topic)}/records/{each.partition}/{each.offset}",
                        value=each.offset,
                    ),
                    Cell(
                        UNKNOWN if letter is None else letter.error_class,
                        note="" if letter is None else letter.error_message,
                    ),
                    Cell(
                        line_text(each.value, _LINE) or "null",
                        note=f"key {line_text(each.key, _LINE)}",
                        is_code=True,
                    ),
                    Cell(place, original, note="" if letter is None else f"offset {letter.offset}"),
                    Cell("" if letter is None else letter.stage),
                ],
                [("Edit and retry", f"{base}/edit?{urlencode({'from': here})}")] if visit.may_change else [],
            )
        )
    columns = (
        Column("offset", "Letter", is_number=True),
        Column("cause", "Cause"),
        Column("value", "Record"),
        Column("place", "From", is_secondary=True),
        Column("stage", "Stage", is_secondary=True),
    )
    table = listing(
        f"{base}/letters",
        visit.parameters,
        columns,
        rows,
        one="open letter",
        many="open letters",
        empty=("No open dead letters", "All were retried or dropped, or there never was one."),
    )
    return listing_page(
        visit,
        [Part(table)],
        title=f"Dead letters of {name}",
        section="Pipelines",
        trail=(*TRAIL, (name, base)),
        command=command_lines.line("pipeline", "dlq", "list", "pipeline.yml", name),
        tiles=[(f"{stage}: {cause}", count_text(count)) for (stage, cause), count in causes.most_common(6)],
        actions=[("Retry", f"{base}/retry"), ("Drop", f"{base}/drop")] if found else [],
    )


async def _topic_of(visit: Visit, name: str) -> str:
    """Return the topic of a pipeline's dead letters; the usual one where the visitor cannot see its group."""
    await visit.caller.authenticate()
    group = f"{GROUP_PREFIX}{name}"
    found = await (await visit.caller.admin()).list_consumer_group_offsets([group], outcomes=True)
    offsets = found.results.get(group)
    return dead_letter_topic(name, [each for each, offset in (offsets or {}).items() if offset is not None])


async def _open(visit: Visit, topic: str) -> list[OpenLetter]:
    await visit.caller.authenticate()

    def read() -> list[OpenLetter]:
        return list(islice(open_letters(visit.caller.properties, topic), _LETTERS_MAX))

    return await visit.services.background.run(read)


def pipeline_forms() -> dict[str, ChangeForm]:
    """Return the forms by their paths."""
    return {
        "/pipelines/{pipeline}/retry": ChangeForm(_show_retry, _plan_retry),
        "/pipelines/{pipeline}/drop": ChangeForm(_show_drop, _plan_drop),
        "/pipelines/{pipeline}/edit": ChangeForm(_show_edit, _plan_edit),
    }


async def _choice(visit: Visit, values: Fields, verb: str) -> Form:
    name = visit.request.path_params["pipeline"]
    base = path_of("pipelines", name)
    found = await _open(visit, await _topic_of(visit, name))
    causes = Counter(each.letter.error_class for each in found if each.letter is not None)
    return Form(
        title=f"{verb.capitalize()} dead letters of {name}",
        path=f"{base}/{verb}",
        back=f"{base}/letters",
        section="Pipelines",
        trail=(*TRAIL, (name, base), ("Dead letters", f"{base}/letters")),
        fields=[
            Field(
                "cause",
                "Which",
                "select",
                values.get("cause", ""),
                options=[
                    ("", f"all {len(found)}"),
                    *((each, f"{each} ({count})") for each, count in causes.items()),
                ],
                is_wide=True,
            )
        ],
    )


async def _show_retry(visit: Visit, values: Fields) -> Form:
    return await _choice(visit, values, "retry")


async def _show_drop(visit: Visit, values: Fields) -> Form:
    return await _choice(visit, values, "drop")


async def _chosen(visit: Visit, values: Fields) -> tuple[str, str, LetterFilter, Sequence[OpenLetter]]:
    name = visit.request.path_params["pipeline"]
    topic = await _topic_of(visit, name)
    cause = values.get("cause", "")
    meant = LetterFilter(causes=frozenset([cause]) if cause else frozenset())
    found = [each for each in await _open(visit, topic) if meant.means(each.letter)]
    if not found:
        raise FormError("There is no such open dead letter.")
    return name, topic, meant, found


async def _plan_retry(visit: Visit, values: Fields) -> Change:
    name, topic, meant, found = await _chosen(visit, values)
    properties = visit.caller.properties

    def run() -> Handled:
        create_topics(properties, topic)
        return replay(properties, topic, meant)

    async def perform() -> str:
        done = await visit.services.background.run(run)
        return f"Sent {counted(done.taken, 'dead letter')} again; left: {count_text(done.kept)}."

    base = path_of("pipelines", name)
    cause = values.get("cause") or None
    return Change(
        question=f"Retry {_counted(found)} of {name}?",
        button="Retry",
        command=command_lines.line(
            "pipeline", "dlq", "retry", "pipeline.yml", name, options={"cause": cause}
        ),
        perform=perform,
        done=f"{base}/letters",
        back=f"{base}/letters",
        operation="RetryDeadLetters",
        resource=f"Topic:{topic}",
        facts=[("To", retry_topic(topic)), ("Cause", cause or "any")],
        warning="The pipeline reads them when it runs. A record that fails again is a new dead letter.",
    )


async def _plan_drop(visit: Visit, values: Fields) -> Change:
    name, topic, meant, found = await _chosen(visit, values)
    properties = visit.caller.properties

    async def perform() -> str:
        done = await visit.services.background.run(drop, properties, topic, meant)
        return f"Dropped {counted(done.taken, 'dead letter')} of {name}; left: {count_text(done.kept)}."

    base = path_of("pipelines", name)
    cause = values.get("cause") or None
    return Change(
        question=f"Drop {_counted(found)} of {name}?",
        button="Drop",
        command=command_lines.line(
            "pipeline", "dlq", "drop", "pipeline.yml", name, options={"cause": cause, "yes": True}
        ),
        perform=perform,
        done=f"{base}/letters",
        back=f"{base}/letters",
        operation="DropDeadLetters",
        resource=f"Topic:{topic}",
        facts=[("Cause", cause or "any")],
        warning="They stay in the topic until its retention ends, but nothing retries them any more.",
        is_dangerous=True,
    )


def _counted(found: Sequence[OpenLetter]) -> str:
    return "at least " * (len(found) == _LETTERS_MAX) + counted(len(found), "dead letter")


async def _show_edit(visit: Visit, values: Fields) -> Form:
    name = visit.request.path_params["pipeline"]
    base = path_of("pipelines", name)
    given = dict(values)
    if "value" not in given:
        record = await record_at(visit, await _topic_of(visit, name), given.get("from", ""))
        given |= fields_of(record)
    return Form(
        title=f"Edit and retry a dead letter of {name}",
        path=f"{base}/edit",
        back=f"{base}/letters",
        section="Pipelines",
        trail=(*TRAIL, (name, base), ("Dead letters", f"{base}/letters")),
        intro="The changed record goes to the pipeline; the letter stays open until it is dropped.",
        fields=[
            Field("from", "", "hidden", given.get("from", "")),
            *(each for each in record_fields(given) if each.name != "partition"),
        ],
    )


async def _plan_edit(visit: Visit, values: Fields) -> Change:
    name = visit.request.path_params["pipeline"]
    topic = await _topic_of(visit, name)
    base = path_of("pipelines", name)
    key, value, headers = entered_record(values)
    producer = await visit.caller.producer()
    properties = visit.caller.properties
    target = retry_topic(topic)

    async def perform() -> str:
        await visit.services.background.run(create_topics, properties, topic)
        sent = await (await producer.send(target, value, key, headers))
        return f"The record is in {target} at offset {sent.offset}; drop its letter when it is processed."

    return Change(
        question=f"Send the changed record to {name} again?",
        button="Retry",
        command=command_lines.line("produce", target, options={"json-lines": True}),
        perform=perform,
        done=f"{base}/letters",
        back=f"{base}/letters",
        operation="Produce",
        resource=f"Topic:{target}",
        facts=[
            ("To", target),
            ("Key", "null" if key is None else values.get("key", "")),
            ("Value", "null" if value is None else values.get("value", "")[:2_000]),
        ],
    )
