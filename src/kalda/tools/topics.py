"""`kalda topics`: lists, describes, creates, alters and deletes topics, as `kafka-topics` does.

`kalda.tools.topic_selection` decides which topics a name means, `kalda.tools.topic_views` how they are shown.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolUsageError
from kalda.command.option_types import INT16_MAX, INT32_MAX, Integer
from kalda.command.output import Json
from kalda.command.results import error_json, raise_for
from kalda.command.values import distinct, parse_settings
from kalda.tools.topic_selection import existing_topics, names_of_ids, select, topic_arguments
from kalda.tools.topic_views import (
    is_of_kind,
    overrides_of,
    parse_replica_assignment,
    partitions_table,
    topic_json,
    topics_table,
)

if TYPE_CHECKING:
    from kalda.clients.admin.configs import ConfigEntry
    from kalda.clients.admin.topics import TopicDescription
    from kalda.clients.errors import ClientError

topics = noun("Create, list, describe, alter and delete topics.")


@command("list", topics)
@topic_arguments
@click.option("--exclude-internal", is_flag=True, help="Leave out the topics in which brokers keep state.")
async def list_topics(
    tool: Tool, names: tuple[str, ...], topic: tuple[str, ...], exclude_internal: bool
) -> None:
    """List the names of topics.

    Without names, all topics are listed. A name may be a regular expression.
    """
    from kalda.common.types import uuid_to_text

    async with tool.admin() as admin:
        listings = await admin.list_topics(include_internal=not exclude_internal)
    chosen = select(sorted(listings), [*names, *topic]) if names or topic else sorted(listings)
    document: list[Json] = [
        {
            "name": name,
            "topic_id": None if (topic_id := listings[name].topic_id) is None else uuid_to_text(topic_id),
            "is_internal": listings[name].is_internal,
        }
        for name in chosen
    ]
    tool.output.result({"topics": document}, *chosen)


@command("describe", topics)
@topic_arguments
@click.option("--topic-id", "topic_ids", multiple=True, metavar="ID", help="A topic, by its id; repeatable.")
@click.option(
    "--partition-size-limit-per-response",
    "page",
    type=Integer(1, INT32_MAX),
    default=2000,
    metavar="COUNT",
    help="At most this many partitions in one response of a broker.",
)
@click.option("--exclude-internal", is_flag=True, help="Leave out the topics in which brokers keep state.")
@click.option(
    "--under-replicated-partitions", is_flag=True, help="Only partitions with replicas that are not in sync."
)
@click.option("--unavailable-partitions", is_flag=True, help="Only partitions without a leader.")
@click.option(
    "--under-min-isr-partitions",
    is_flag=True,
    help="Only partitions with fewer in-sync replicas than they need.",
)
@click.option(
    "--at-min-isr-partitions",
    is_flag=True,
    help="Only partitions with just as many in-sync replicas as they need.",
)
@click.option("--topics-with-overrides", is_flag=True, help="Only topics with settings of their own.")
async def describe(
    tool: Tool,
    /,
    names: tuple[str, ...],
    topic: tuple[str, ...],
    topic_ids: tuple[str, ...],
    page: int,
    exclude_internal: bool,
    topics_with_overrides: bool,
    **filters: bool,
) -> None:
    """Describe topics and their partitions.

    Without names, all topics are described. A name may be a regular expression. The options that name a kind
    of partitions may be combined: a partition is shown if it is of one of the kinds.
    """
    from kalda.clients.admin.configs import ConfigResource

    async with tool.admin() as admin:
        wanted_names = [*names, *topic, *await names_of_ids(admin, "--topic-id", topic_ids)]
        chosen = await existing_topics(
            admin, wanted_names, include_internal=not exclude_internal, is_all_default=True
        )
        found = await admin.describe_topics(chosen, partitions_per_page=page, outcomes=True)
        settings = await admin.describe_configs(
            [ConfigResource.topic(name) for name in chosen if name in found.results], outcomes=True
        )
    descriptions: list[TopicDescription] = sorted(found.results.values(), key=lambda each: each.name)
    configs: dict[str, Mapping[str, ConfigEntry]] = {
        resource.name: entries for resource, entries in settings.results.items()
    }
    overrides = {each.name: overrides_of(configs.get(each.name, {})) for each in descriptions}
    if topics_with_overrides:
        descriptions = [each for each in descriptions if overrides[each.name]]
    wanted = [name for name, is_wanted in filters.items() if is_wanted]
    shown = {
        each.name: [
            partition
            for partition in each.partitions
            if not wanted or any(is_of_kind(kind, partition, configs.get(each.name, {})) for kind in wanted)
        ]
        for each in descriptions
    }
    if wanted:
        descriptions = [each for each in descriptions if shown[each.name]]
    document = {"topics": [topic_json(each, shown[each.name], overrides[each.name]) for each in descriptions]}
    partitions = partitions_table(
        [(each.name, part) for each in descriptions for part in shown[each.name]],
        empty="There are no such partitions." if wanted and not found.errors else None,
    )
    if wanted:
        tool.output.result(document, partitions)
    elif topics_with_overrides:
        tool.output.result(document, topics_table(descriptions, overrides))
    else:
        tool.output.result(document, topics_table(descriptions, overrides), "", partitions)
    raise_for(tool.output, [*found.errors.values(), *settings.errors.values()])


@command("create", topics)
@topic_arguments
@click.option(
    "--partitions",
    type=Integer(1, INT32_MAX),
    metavar="COUNT",
    help="How many; default: the broker's setting.",
)
@click.option(
    "--replication-factor",
    type=Integer(1, INT16_MAX),
    metavar="COUNT",
    help="How many; default: the broker's setting.",
)
@click.option(
    "--replica-assignment",
    metavar="0:1,1:2,...",
    help="The brokers of each partition: brokers with colons between, partitions with commas between.",
)
@click.option("--config", multiple=True, metavar="KEY=VALUE", help="A setting of the topic; repeatable.")
@click.option("--if-not-exists", is_flag=True, help="A topic that exists is no error, and stays as it is.")
@click.option("--dry-run", is_flag=True, help="Check only whether the topics could be created.")
async def create(
    tool: Tool,
    names: tuple[str, ...],
    topic: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    config: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create topics."""
    from kalda.clients.admin.topics import NewTopic
    from kalda.common.errors import ErrorCode
    from kalda.common.types import uuid_to_text

    chosen = distinct("--topic", names, topic)
    if replica_assignment is not None and (partitions is not None or replication_factor is not None):
        raise ToolUsageError(
            "--replica-assignment implies --partitions and --replication-factor; leave these out"
        )
    assignment = None if replica_assignment is None else parse_replica_assignment(replica_assignment)
    settings = parse_settings("--config", config)
    new = [NewTopic(name, partitions, replication_factor, assignment, settings) for name in chosen]
    async with tool.admin() as admin:
        created = await admin.create_topics(new, validate_only=dry_run, outcomes=True)
    errors = dict(created.errors)
    existing = [
        name
        for name, error in errors.items()
        if if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    ]
    for name in existing:
        del errors[name]
    verb = "Would create" if dry_run else "Created"
    document: list[Json] = []
    lines = []
    for name in chosen:
        result = created.results.get(name)
        topic_id = None if result is None or result.topic_id is None else uuid_to_text(result.topic_id)
        document.append(
            {
                "name": name,
                "is_created": result is not None and not dry_run,
                "topic_id": topic_id,
                "partitions": None if result is None else result.partitions,
                "replication_factor": None if result is None else result.replication_factor,
                "error": error_json(errors.get(name)),
            }
        )
        if result is not None:
            lines.append(f"{verb} topic {name}.")
        elif name in existing:
            lines.append(f"Topic {name} exists.")
    tool.output.result({"topics": document}, *lines)
    raise_for(tool.output, errors)


@command("alter", topics)
@topic_arguments
@click.option(
    "--partitions", type=Integer(1, INT32_MAX), metavar="COUNT", help="The new total number of partitions."
)
@click.option(
    "--replica-assignment",
    metavar="0:1,1:2,...",
    help="The brokers of each added partition: brokers with colons between, partitions with commas between.",
)
@click.option("--config", multiple=True, metavar="KEY=VALUE", help="A setting to set; repeatable.")
@click.option(
    "--delete-config", multiple=True, metavar="KEY", help="A setting to return to its default; repeatable."
)
@click.option("--if-exists", is_flag=True, help="A topic that does not exist is no error.")
@click.option("--dry-run", is_flag=True, help="Check only whether the topics could be altered.")
async def alter(
    tool: Tool,
    names: tuple[str, ...],
    topic: tuple[str, ...],
    partitions: int | None,
    replica_assignment: str | None,
    config: tuple[str, ...],
    delete_config: tuple[str, ...],
    if_exists: bool,
    dry_run: bool,
) -> None:
    """Add partitions to topics, or change their settings.

    Partitions cannot be taken away. Adding some changes which partition a key belongs to. A name may be a
    regular expression.
    """
    from kalda.clients.admin.configs import AlterConfigOp, ConfigResource
    from kalda.clients.admin.topics import NewPartitions

    wanted = distinct("--topic", names, topic)
    settings = parse_settings("--config", config)
    operations = [
        *(AlterConfigOp.set(name, value) for name, value in settings.items()),
        *(AlterConfigOp.delete(name) for name in delete_config),
    ]
    if partitions is None and not operations:
        raise ToolUsageError("there is nothing to alter: use --partitions, --config or --delete-config")
    if replica_assignment is not None and partitions is None:
        raise ToolUsageError("--replica-assignment needs --partitions, the new total number")
    async with tool.admin() as admin:
        chosen = await existing_topics(admin, wanted, is_missing_allowed=if_exists)
        failures: dict[str, ClientError] = {}
        if partitions is not None and chosen:
            new = {}
            for description in (await admin.describe_topics(chosen, outcomes=True)).values():
                added = partitions - len(description.partitions)
                assignment = None
                if replica_assignment is not None:
                    by_partition = parse_replica_assignment(replica_assignment)
                    # Kafka's tool takes the brokers of all partitions, and uses those of the added ones.
                    assignment = list(by_partition.values())[-added:] if added > 0 else []
                new[description.name] = NewPartitions(partitions, assignment)
            failures |= (await admin.create_partitions(new, validate_only=dry_run, outcomes=True)).errors
        if operations and chosen:
            resources = {ConfigResource.topic(name): operations for name in chosen if name not in failures}
            altered = await admin.incremental_alter_configs(resources, validate_only=dry_run, outcomes=True)
            failures |= {resource.name: error for resource, error in altered.errors.items()}
    verb = "Would alter" if dry_run else "Altered"
    tool.output.result(
        {"topics": [{"name": name, "error": error_json(failures.get(name))} for name in chosen]},
        *(f"{verb} topic {name}." for name in chosen if name not in failures),
    )
    raise_for(tool.output, failures)


@command("delete", topics)
@topic_arguments
@click.option("--if-exists", is_flag=True, help="A topic that does not exist is no error.")
async def delete(tool: Tool, names: tuple[str, ...], topic: tuple[str, ...], if_exists: bool) -> None:
    """Delete topics with all their records.

    A name may be a regular expression; internal topics must be named in full.
    """
    wanted = distinct("--topic", names, topic)
    async with tool.admin() as admin:
        chosen = await existing_topics(admin, wanted, include_internal=False, is_missing_allowed=if_exists)
        deleted = await admin.delete_topics(chosen, outcomes=True)
    errors = {name: error for name, error in deleted.errors.items() if isinstance(name, str)}
    tool.output.result(
        {"topics": [{"name": name, "error": error_json(errors.get(name))} for name in chosen]},
        *(f"Deleted topic {name}." for name in chosen if name not in errors),
    )
    raise_for(tool.output, errors)
