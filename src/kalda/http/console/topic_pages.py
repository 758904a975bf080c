"""Serves the pages of topics: the list, partitions, settings, and the groups that read a topic."""

import asyncio
from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from kalda.clients.admin.configs import ConfigResource
from kalda.clients.errors import ClientError
from kalda.common.types import TopicPartition, uuid_to_text
from kalda.http.console import command_lines
from kalda.http.console.cluster_views import (
    TopicRow,
    rate_between,
    sizes_by_topic,
    sizes_of_replicas,
    topic_rows,
)
from kalda.http.console.config_views import setting_rows
from kalda.http.console.reading import Reading, allowed
from kalda.http.console.table_views import TableView, table_page
from kalda.http.console.visits import Visit, path_of

_COLUMNS: Final = ("name", "partitions", "replication", "size", "state")


def topic_tabs(topic: str) -> list[tuple[str, str]]:
    """Return the parts of a topic's pages, with their paths."""
    base = path_of("topics", topic)
    return [
        ("Records", f"{base}/records"),
        ("Live", f"{base}/live"),
        ("Partitions", base),
        ("Groups", f"{base}/groups"),
        ("Settings", f"{base}/settings"),
        ("History", f"{base}/history"),
    ]


TRAIL: Final = (("Topics", "/topics"),)


async def topics(visit: Visit, reading: Reading) -> Response:
    """List the topics: searched, sorted, by pages."""
    has_internal = visit.parameter("internal") == "1"
    described, dirs = await asyncio.gather(
        reading.topics(visit.caller), allowed(reading.log_dirs(visit.caller), {})
    )
    sizes = sizes_by_topic(dirs) if dirs else None
    rows = [each for each in topic_rows(described, sizes) if has_internal or not each.is_internal]
    view = TableView.of("/topics", visit.parameters, _COLUMNS, kept=("internal",))
    page = table_page(
        rows,
        view,
        lambda row: row.name,
        {
            "name": lambda row: row.name,
            "partitions": lambda row: row.partitions,
            "replication": lambda row: row.replication,
            "size": lambda row: row.size,
            "state": lambda row: (row.offline, row.under_replicated),
        },
    )
    counts = await _counts(visit, reading, page.rows)
    return visit.page(
        "topics.html",
        title="Topics",
        section="Topics",
        command=command_lines.line("topics", "list", options={"exclude-internal": not has_internal}),
        page=page,
        has_internal=has_internal,
        counts=counts,
    )


async def _counts(
    visit: Visit, reading: Reading, rows: Sequence[TopicRow]
) -> dict[str, tuple[int | None, float | None, int | None]]:
    """Return records, rate and greatest lag of each topic on a page, as far as the brokers say them."""
    partitions = {row.name: [TopicPartition(row.name, n) for n in range(row.partitions)] for row in rows}
    wanted = [each for of_topic in partitions.values() for each in of_topic]
    if not wanted:
        return {}
    try:
        present, former = await reading.ends(visit.caller, "topics", wanted)
    except ClientError:
        return {}
    committed = reading.known_committed(visit.caller)
    lags: dict[str, int] = {}
    for of_group in ({} if committed is None else committed.offsets).values():
        of_topic: dict[str, int] = {}
        for partition, offset in of_group.items():
            end = present.ends.get(partition)
            if end is not None:
                of_topic[partition.topic] = of_topic.get(partition.topic, 0) + max(0, end - offset.offset)
        for topic, lag in of_topic.items():
            lags[topic] = max(lag, lags.get(topic, 0))
    return {
        name: (present.records_of(of_topic), rate_between(former, present, of_topic), lags.get(name))
        for name, of_topic in partitions.items()
    }


async def topic(visit: Visit, reading: Reading) -> Response:
    """Show a topic's partitions."""
    name = visit.request.path_params["topic"]
    admin = await visit.admin()
    described, dirs = await asyncio.gather(
        admin.describe_topics([name]), allowed(reading.log_dirs(visit.caller), {})
    )
    found = described[name]
    partitions = [TopicPartition(name, each.partition) for each in found.partitions]
    present, former = await reading.ends(visit.caller, f"topic {name}", partitions)
    sizes = sizes_of_replicas(dirs, name)
    rows = [
        (
            each,
            present.starts.get(partition),
            present.ends.get(partition),
            present.records_of([partition]),
            rate_between(former, present, [partition]),
            sizes.get((each.partition, each.leader_id)),
        )
        for each, partition in zip(found.partitions, partitions, strict=True)
    ]
    return visit.page(
        "topic.html",
        title=name,
        section="Topics",
        trail=TRAIL,
        command=command_lines.line("topics", "describe", name),
        topic=found,
        topic_id=None if found.topic_id is None else uuid_to_text(found.topic_id),
        tabs=topic_tabs(name),
        rows=rows,
        records=present.records_of(partitions),
        rate=rate_between(former, present, partitions),
        size=sum(sizes.values()) if sizes else None,
        base=path_of("topics", name),
        under=sum(len(each.isr) < len(each.replicas) for each in found.partitions),
    )


async def topic_settings(visit: Visit, reading: Reading) -> Response:
    """Show a topic's settings, with where each comes from."""
    name = visit.request.path_params["topic"]
    admin = await visit.admin()
    resource = ConfigResource.topic(name)
    described = await admin.describe_configs([resource], include_synonyms=True, include_documentation=True)
    rows = setting_rows(described[resource].values())
    return visit.page(
        "topic_settings.html",
        title=name,
        section="Topics",
        trail=TRAIL,
        command=command_lines.line("configs", "describe", options={"topic": name, "all": True}),
        tabs=topic_tabs(name),
        rows=rows,
        base=path_of("topics", name),
        edit_link=visit.url(f"{path_of('topics', name)}/settings/change") if visit.may_change else None,
    )


async def topic_groups(visit: Visit, reading: Reading) -> Response:
    """Show the groups with committed offsets of a topic."""
    name = visit.request.path_params["topic"]
    admin = await visit.admin()
    described, committed = await asyncio.gather(
        admin.describe_topics([name]), reading.committed(visit.caller)
    )
    partitions = [TopicPartition(name, each.partition) for each in described[name].partitions]
    present, _ = await reading.ends(visit.caller, f"topic {name}", partitions)
    rows = []
    for group, offsets in sorted(committed.offsets.items()):
        own = {each: offset.offset for each, offset in offsets.items() if each.topic == name}
        if own:
            known = [present.ends[each] - offset for each, offset in own.items() if each in present.ends]
            rows.append((group, len(own), sum(max(0, lag) for lag in known)))
    return visit.page(
        "topic_groups.html",
        title=name,
        section="Topics",
        trail=TRAIL,
        command=command_lines.line("groups", "describe", options={"all-groups": True}),
        tabs=topic_tabs(name),
        rows=rows,
        is_cut=committed.is_cut,
    )
