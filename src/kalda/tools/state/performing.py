"""Performs the steps of a plan through the admin client.

Steps of one kind that follow each other go in one call. A step that fails does not stop the others: the next
push plans what is left.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import groupby

from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.configs import AlterConfigOp, ConfigResource
from kalda.clients.admin.topics import NewTopic
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.net.client.client_errors import ClientError
from kalda.tools.schemas.registry import Registry
from kalda.tools.state.cluster import chunks
from kalda.tools.state.steps import (
    AddPartitions,
    AlterBrokerConfigs,
    AlterCompatibility,
    AlterTopicConfigs,
    CommitOffsets,
    CreateTopic,
    DeleteGroup,
    DeleteOffsets,
    DeleteSubject,
    DeleteTopic,
    RegisterSchema,
    Step,
)
from kalda.tools.state.subjects import perform_on_registry


async def perform(
    admin: AsyncAdmin, steps: Sequence[Step], registry: Registry | None = None
) -> AsyncIterator[tuple[Step, str | None]]:
    """Perform steps in their order; yield each with what went wrong, or None when it is done."""
    for _, run in groupby(steps, key=type):
        for chunk in chunks(list(run)):
            if isinstance(chunk[0], RegisterSchema | AlterCompatibility | DeleteSubject):
                assert registry is not None, "steps for subjects without a registry"
                for step in chunk:
                    assert isinstance(step, RegisterSchema | AlterCompatibility | DeleteSubject)
                    yield step, await asyncio.to_thread(perform_on_registry, registry, step)
                continue
            try:
                errors = await _perform(admin, chunk)
            except ClientError as error:
                errors = [error] * len(chunk)
            for step, failure in zip(chunk, errors, strict=True):
                yield step, None if failure is None else _reason(failure)


async def _perform(admin: AsyncAdmin, steps: Sequence[Step]) -> list[ClientError | None]:
    """Perform steps of one kind; return the error of each."""
    match steps[0]:
        case CreateTopic():
            return await _create_topics(admin, [each for each in steps if isinstance(each, CreateTopic)])
        case DeleteTopic():
            names = [each.name for each in steps if isinstance(each, DeleteTopic)]
            deleted = await admin.delete_topics(names, outcomes=True)
            return [deleted.errors.get(name) for name in names]
        case AddPartitions():
            totals = {each.topic: each.after for each in steps if isinstance(each, AddPartitions)}
            added = await admin.create_partitions(totals, outcomes=True)
            return [added.errors.get(topic) for topic in totals]
        case CommitOffsets():
            return await _commit_offsets(admin, [each for each in steps if isinstance(each, CommitOffsets)])
        case DeleteOffsets():
            partitions = {each.group: each.partitions for each in steps if isinstance(each, DeleteOffsets)}
            removed = await admin.delete_consumer_group_offsets(partitions, outcomes=True)
            return [
                removed.errors[group]
                if group in removed.errors
                else _first(removed.results[group].errors.values())
                for group in partitions
            ]
        case DeleteGroup():
            groups = [each.group for each in steps if isinstance(each, DeleteGroup)]
            gone = await admin.delete_consumer_groups(groups, outcomes=True)
            return [gone.errors.get(group) for group in groups]
    return await _alter_configs(
        admin, [each for each in steps if isinstance(each, AlterTopicConfigs | AlterBrokerConfigs)]
    )


async def _create_topics(admin: AsyncAdmin, steps: Sequence[CreateTopic]) -> list[ClientError | None]:
    topics = [step.topic for step in steps]
    created = await admin.create_topics(
        [
            NewTopic(each.name, each.partitions, each.replication_factor, config=dict(each.configs))
            for each in topics
        ],
        outcomes=True,
    )
    return [created.errors.get(each.name) for each in topics]


async def _alter_configs(
    admin: AsyncAdmin, steps: Sequence[AlterTopicConfigs | AlterBrokerConfigs]
) -> list[ClientError | None]:
    changes: dict[ConfigResource, list[AlterConfigOp]] = {}
    for step in steps:
        changes.setdefault(_resource(step), []).extend(
            AlterConfigOp.delete(each.name)
            if each.after is None
            else AlterConfigOp.set(each.name, each.after)
            for each in step.changes
        )
    altered = await admin.incremental_alter_configs(changes, outcomes=True)
    return [altered.errors.get(_resource(step)) for step in steps]


def _resource(step: AlterTopicConfigs | AlterBrokerConfigs) -> ConfigResource:
    if isinstance(step, AlterTopicConfigs):
        return ConfigResource.topic(step.topic)
    return ConfigResource.broker(step.broker)


async def _commit_offsets(admin: AsyncAdmin, steps: Sequence[CommitOffsets]) -> list[ClientError | None]:
    # A group has a step for each risk; one request to the group commits all of them.
    offsets: dict[str, dict[TopicPartition, int]] = {}
    for step in steps:
        offsets.setdefault(step.group, {}).update(step.offsets)
    altered = await admin.alter_consumer_group_offsets(offsets, outcomes=True)
    found: list[ClientError | None] = []
    for step in steps:
        error = altered.errors.get(step.group)
        if error is None:
            partitions = altered.results[step.group].errors
            error = _first(partitions[each] for each in step.offsets if each in partitions)
        found.append(error)
    return found


def _first(errors: Iterable[ClientError]) -> ClientError | None:
    return next(iter(errors), None)


def _reason(error: ClientError) -> str:
    if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP):
        return f"{error}; offsets of a group can be changed while it has no members: stop its consumers"
    return str(error)
