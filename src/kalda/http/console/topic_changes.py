"""Changes topics from the console: create, clone, settings, partitions, purge, delete."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kalda.clients.admin.configs import AlterConfigOp, ConfigResource, ConfigSource
from kalda.clients.admin.topics import NewTopic
from kalda.common.types import TopicPartition
from kalda.http.console import command_lines
from kalda.http.console.changes import (
    Change,
    ChangeForm,
    FactTable,
    Field,
    Fields,
    Form,
    FormError,
    integer_of,
)
from kalda.http.console.config_views import is_secret
from kalda.http.console.reading import Reading, partitions_of
from kalda.http.console.record_reading import log_ranges
from kalda.http.console.texts import count_text, counted
from kalda.http.console.topic_pages import TRAIL
from kalda.http.console.visits import Visit, path_of

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.admin.configs import ConfigEntry
    from kalda.clients.admin.topics import TopicKey

PARTITIONS_MAX: Final = 10_000
_REPLICAS_MAX: Final = 1_000
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


def topic_forms(reading: Reading) -> dict[str, ChangeForm]:
    """Return the forms by their paths."""
    changes = TopicChanges(reading)
    return {
        "/topics/create": ChangeForm(changes.show_create, changes.plan_create),
        "/topics/{topic}/clone": ChangeForm(changes.show_clone, changes.plan_clone),
        "/topics/{topic}/settings/change": ChangeForm(changes.show_setting, changes.plan_setting),
        "/topics/{topic}/partitions": ChangeForm(changes.show_partitions, changes.plan_partitions),
        "/topics/{topic}/purge": ChangeForm(changes.show_purge, changes.plan_purge),
        "/topics/{topic}/delete": ChangeForm(changes.show_delete, changes.plan_delete),
    }


def topic_name_of(values: Fields, name: str = "name") -> str:
    """Return a name that a topic may have.

    Raises:
        FormError: it may not.
    """
    text = values.get(name, "").strip()
    if not _NAME.fullmatch(text) or text in (".", ".."):
        raise FormError(
            f"Name: {text[:80]!r} is not allowed: a topic's name has up to 249 letters, digits, dots, "
            "underscores and dashes",
            name,
        )
    return text


def settings_of(text: str) -> dict[str, str]:
    """Read lines ``name=value``; empty lines and those that begin with # do not count.

    Raises:
        FormError: a line has another form.
    """
    settings = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise FormError(f"Settings: {line[:80]!r} is not name=value", "settings")
        settings[name.strip()] = value.strip()
    return settings


class TopicChanges:
    """The changes, with what they need to read."""

    def __init__(self, reading: Reading) -> None:
        self._reading: Final = reading

    # Create and clone.

    async def show_create(self, visit: Visit, values: Fields) -> Form:
        """Return the form of a new topic."""
        return Form(
            title="Create a topic",
            path="/topics/create",
            back="/topics",
            section="Topics",
            trail=TRAIL,
            fields=_create_fields(values),
        )

    async def plan_create(self, visit: Visit, values: Fields) -> Change:
        """Return the creation; the brokers have checked that it is possible."""
        return await _creation(visit, values, "Create")

    async def show_clone(self, visit: Visit, values: Fields) -> Form:
        """Return the form of a new topic with another one's partitions and settings."""
        topic = visit.request.path_params["topic"]
        admin = await visit.admin()
        described = (await admin.describe_topics([topic]))[topic]
        own = await own_settings(visit, topic)
        defaults = {
            "name": f"{topic}-copy",
            "partitions": str(len(described.partitions)),
            "replicas": str(max((len(each.replicas) for each in described.partitions), default=1)),
            "settings": "\n".join(f"{name}={value}" for name, value in own.items()),
        }
        return Form(
            title=f"Clone {topic}",
            path=f"{path_of('topics', topic)}/clone",
            back=path_of("topics", topic),
            section="Topics",
            trail=(*TRAIL, (topic, path_of("topics", topic))),
            intro="The new topic gets partitions and settings of this one. Replay copies records.",
            fields=_create_fields({**defaults, **values}),
        )

    async def plan_clone(self, visit: Visit, values: Fields) -> Change:
        """Return the creation of the clone."""
        return await _creation(visit, values, "Clone")

    # Settings.

    async def show_setting(self, visit: Visit, values: Fields) -> Form:
        """Return the form of one setting with its present value."""
        topic = visit.request.path_params["topic"]
        resource = ConfigResource.topic(topic)
        entries = (await (await visit.admin()).describe_configs([resource]))[resource]
        return Form(
            title=f"Change a setting of {topic}",
            path=f"{path_of('topics', topic)}/settings/change",
            back=f"{path_of('topics', topic)}/settings",
            section="Topics",
            trail=(*TRAIL, (topic, path_of("topics", topic))),
            fields=setting_fields(values, entries),
        )

    async def plan_setting(self, visit: Visit, values: Fields) -> Change:
        """Return the change of a setting; the brokers have checked that it is possible."""
        topic = visit.request.path_params["topic"]
        return await setting_change(
            visit,
            values,
            ConfigResource.topic(topic),
            what=f"topic {topic}",
            option=("topic", topic),
            done=f"{path_of('topics', topic)}/settings",
            audited=f"Topic:{topic}",
        )

    # Partitions.

    async def show_partitions(self, visit: Visit, values: Fields) -> Form:
        """Return the form of the number of partitions."""
        topic = visit.request.path_params["topic"]
        count = len(await partitions_of(await visit.admin(), topic))
        return Form(
            title=f"Add partitions to {topic}",
            path=f"{path_of('topics', topic)}/partitions",
            back=path_of("topics", topic),
            section="Topics",
            trail=(*TRAIL, (topic, path_of("topics", topic))),
            fields=[
                Field(
                    "total",
                    "Partitions in all",
                    "number",
                    values.get("total", str(count + 1)),
                    f"Now {count}. Partitions cannot be taken away again.",
                    least=count + 1,
                )
            ],
        )

    async def plan_partitions(self, visit: Visit, values: Fields) -> Change:
        """Return the addition of partitions."""
        topic = visit.request.path_params["topic"]
        admin = await visit.admin()
        count = len(await partitions_of(admin, topic))
        total = integer_of(values, "total", "Partitions in all", count + 1, PARTITIONS_MAX)
        await admin.create_partitions({topic: total}, validate_only=True)

        async def perform() -> str:
            await admin.create_partitions({topic: total})
            return f"Topic {topic} has {counted(total, 'partition')}."

        return Change(
            question=f"Add {counted(total - count, 'partition')} to {topic}?",
            button="Add partitions",
            command=command_lines.line("topics", "alter", topic, options={"partitions": total}),
            perform=perform,
            done=path_of("topics", topic),
            back=path_of("topics", topic),
            operation="CreatePartitions",
            resource=f"Topic:{topic}",
            facts=[("Partitions now", str(count)), ("Partitions then", str(total))],
            warning="Keys then belong to other partitions than before: one key's are in two.",
        )

    # Purge and delete.

    async def show_purge(self, visit: Visit, values: Fields) -> Form:
        """Return the form that chooses which records to delete."""
        topic = visit.request.path_params["topic"]
        numbers = sorted(await log_ranges(visit.caller, topic))
        return Form(
            title=f"Purge records of {topic}",
            path=f"{path_of('topics', topic)}/purge",
            back=path_of("topics", topic),
            section="Topics",
            trail=(*TRAIL, (topic, path_of("topics", topic))),
            fields=[
                Field(
                    "partition",
                    "Partition",
                    "select",
                    values.get("partition", ""),
                    options=[("", "All"), *((str(each), str(each)) for each in numbers)],
                ),
                Field(
                    "before",
                    "Before offset",
                    "text",
                    values.get("before", ""),
                    "The first offset to keep. Empty deletes all that is there now.",
                ),
            ],
        )

    async def plan_purge(self, visit: Visit, values: Fields) -> Change:
        """Return the deletion of records."""
        topic = visit.request.path_params["topic"]
        admin = await visit.admin()
        shown = await shown_topic(admin, topic, values)
        logs = await log_ranges(visit.caller, topic)
        chosen = values.get("partition", "")
        if chosen:
            number = integer_of(values, "partition", "Partition", 0, max(logs, default=0))
            logs = {number: logs[number]}
        before = values.get("before", "").strip()
        bound = integer_of(values, "before", "Before offset", 0, 2**63 - 1) if before else None
        ends = _numbers_of(values.get("ends", ""))
        logs = {number: (first, min(end, ends.get(number, end))) for number, (first, end) in logs.items()}
        keep = {
            number: end if bound is None else min(max(bound, first), end)
            for number, (first, end) in logs.items()
        }
        keep = {number: offset for number, offset in keep.items() if offset > logs[number][0]}
        if not keep:
            raise FormError("There are no records to delete.")
        lost = sum(offset - logs[number][0] for number, offset in keep.items())

        async def perform() -> str:
            await admin.delete_records(
                {TopicPartition(topic, number): offset for number, offset in keep.items()}
            )
            return f"Deleted {counted(lost, 'record')} of {topic}."

        place = f"{topic}:{chosen}" if chosen else topic
        return Change(
            question=f"Delete {counted(lost, 'record')} of {topic}?",
            button="Purge",
            command=command_lines.line(
                "delete-records", options={"topic": place, "before-offset": bound, "all": bound is None}
            ),
            perform=perform,
            done=path_of("topics", topic),
            back=path_of("topics", topic),
            operation="DeleteRecords",
            resource=f"Topic:{topic}",
            table=FactTable.of(
                ("Partition", "First offset", "End", "First offset then"),
                [
                    (
                        str(number),
                        count_text(logs[number][0]),
                        count_text(logs[number][1]),
                        count_text(offset),
                    )
                    for number, offset in sorted(keep.items())
                ],
                (0, 1, 2, 3),
            ),
            warning="Deleted records cannot be brought back.",
            pinned={
                **shown,
                "ends": ",".join(f"{number}:{end}" for number, (_, end) in sorted(logs.items())),
            },
            is_dangerous=True,
            word=topic,
        )

    async def show_delete(self, visit: Visit, values: Fields) -> Form:
        """Return the form of a deletion, which has nothing to fill in."""
        topic = visit.request.path_params["topic"]
        return Form(
            title=f"Delete {topic}",
            path=f"{path_of('topics', topic)}/delete",
            back=path_of("topics", topic),
            section="Topics",
            trail=(*TRAIL, (topic, path_of("topics", topic))),
            intro="The next page shows what is in the topic and which groups read it.",
        )

    async def plan_delete(self, visit: Visit, values: Fields) -> Change:
        """Return the deletion of a topic."""
        topic = visit.request.path_params["topic"]
        admin = await visit.admin()
        shown = await shown_topic(admin, topic, values)
        logs = await log_ranges(visit.caller, topic)
        committed = await self._reading.committed(visit.caller)
        readers = [
            group
            for group, offsets in committed.offsets.items()
            if any(each.topic == topic for each in offsets)
        ]

        async def perform() -> str:
            await admin.delete_topics([_key_of(topic, shown)])
            return f"Topic {topic} was deleted."

        return Change(
            question=f"Delete the topic {topic} with all its records?",
            button="Delete topic",
            command=command_lines.line("topics", "delete", topic),
            perform=perform,
            done="/topics",
            back=path_of("topics", topic),
            operation="DeleteTopics",
            resource=f"Topic:{topic}",
            facts=[
                ("Partitions", str(len(logs))),
                ("Records", count_text(sum(end - first for first, end in logs.values()))),
                ("Groups with offsets", ", ".join(sorted(readers)[:10]) or "none"),
            ],
            warning="It cannot be brought back.",
            pinned=shown,
            is_dangerous=True,
            word=topic,
        )


async def shown_topic(admin: "AsyncAdmin", topic: str, values: Fields) -> dict[str, str]:
    """Return the field with a topic's id, by which a question is about the topic and not about its name.

    Raises:
        FormError: a question was about a topic that was deleted, and another one has its name.
    """
    found = (await admin.describe_topics([topic]))[topic].topic_id
    topic_id = "" if found is None else str(found)
    if values.get("topic_id", topic_id) != topic_id:
        raise FormError(f"{topic} was deleted and created again; look at what it has now.")
    return {"topic_id": topic_id}


def _key_of(topic: str, shown: Fields) -> "TopicKey":
    """Return the id that `shown_topic` returned; the name if the brokers give topics none."""
    topic_id = shown["topic_id"]
    return UUID(topic_id) if topic_id else topic


def _numbers_of(text: str) -> dict[int, int]:
    """Read ``0:17,1:5``, which a question has in its fields.

    Raises:
        FormError: it has another form.
    """
    try:
        pairs = [pair.split(":") for pair in text.split(",") if pair]
        return {int(number): int(offset) for number, offset in pairs}
    except ValueError:
        raise FormError("The ends of the partitions are not numbers.") from None


def _create_fields(values: Fields) -> list[Field]:
    return [
        Field(
            "name",
            "Name",
            value=values.get("name", ""),
            placeholder="orders",
            is_required=True,
            is_wide=True,
            hint="Letters, digits, dots, underscores and dashes.",
        ),
        Field(
            "partitions",
            "Partitions",
            "number",
            values.get("partitions", ""),
            "Empty takes the brokers' setting.",
            least=1,
        ),
        Field(
            "replicas",
            "Replicas",
            "number",
            values.get("replicas", ""),
            "Empty takes the brokers' setting.",
            least=1,
        ),
        Field(
            "settings",
            "Settings",
            "area",
            values.get("settings", ""),
            "One name=value a line.",
            "retention.ms=86400000\ncleanup.policy=compact",
            is_wide=True,
            rows=5,
        ),
    ]


async def _creation(visit: Visit, values: Fields, verb: str) -> Change:
    name = topic_name_of(values)
    partitions = replicas = None
    if values.get("partitions", "").strip():
        partitions = integer_of(values, "partitions", "Partitions", 1, PARTITIONS_MAX)
    if values.get("replicas", "").strip():
        replicas = integer_of(values, "replicas", "Replicas", 1, _REPLICAS_MAX)
    settings = settings_of(values.get("settings", ""))
    new = NewTopic(name, partitions=partitions, replication_factor=replicas, config=settings)
    admin = await visit.admin()
    await admin.create_topics([new], validate_only=True)

    async def perform() -> str:
        await admin.create_topics([new])
        return f"Topic {name} was created."

    options: list[tuple[str, str | int | bool | None]] = [
        ("partitions", partitions),
        ("replication-factor", replicas),
    ]
    options += [("config", f"{key}={value}") for key, value in settings.items()]
    return Change(
        question=f"{verb} the topic {name}?" if verb == "Create" else f"Create the topic {name} as a clone?",
        button="Create topic",
        command=command_lines.line("topics", "create", name, options=options),
        perform=perform,
        done=path_of("topics", name),
        back="/topics",
        operation="CreateTopics",
        resource=f"Topic:{name}",
        facts=[
            ("Partitions", str(partitions or "the brokers' setting")),
            ("Replicas", str(replicas or "the brokers' setting")),
            ("Settings", "\n".join(f"{key} = {value}" for key, value in settings.items()) or "the brokers'"),
        ],
    )


async def own_settings(visit: Visit, topic: str) -> dict[str, str]:
    """Return the settings that a topic has of its own, without secrets."""
    resource = ConfigResource.topic(topic)
    entries = (await (await visit.admin()).describe_configs([resource]))[resource]
    return {
        name: entry.value
        for name, entry in entries.items()
        if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        and entry.value is not None
        and not is_secret(entry)
    }


def setting_fields(values: Fields, entries: "Mapping[str, ConfigEntry]") -> list[Field]:
    """Return the fields of a change of one setting."""
    name = values.get("name", "")
    entry = entries.get(name)
    present = "" if entry is None or is_secret(entry) else entry.value or ""
    names = sorted(each for each, known in entries.items() if not known.is_read_only)
    return [
        Field("name", "Setting", "select", name, options=[(each, each) for each in names], is_wide=True),
        Field(
            "value",
            "Value",
            "text",
            values.get("value", present),
            is_wide=True,
            hint=f"Now: {present or 'empty'}" if entry else "",
        ),
        Field("default", "Return to the default", "check", values.get("default", "")),
    ]


async def setting_change(
    visit: Visit,
    values: Fields,
    resource: ConfigResource,
    *,
    what: str,
    option: tuple[str, str | int | bool],
    done: str,
    audited: str,
) -> Change:
    """Return the change of one setting of a topic or a broker, which the brokers have checked."""
    name, value = values.get("name", ""), values.get("value", "").strip()
    is_default = bool(values.get("default"))
    admin = await visit.admin()
    entries = (await admin.describe_configs([resource]))[resource]
    entry = entries.get(name)
    if entry is None:
        raise FormError(f"Setting: {what} has no setting {name[:100]!r}", "name")
    operation = AlterConfigOp.delete(name) if is_default else AlterConfigOp.set(name, value)
    await admin.incremental_alter_configs({resource: [operation]}, validate_only=True)
    is_hidden = is_secret(entry)

    async def perform() -> str:
        await admin.incremental_alter_configs({resource: [operation]})
        return f"{name} of {what} {'is at its default' if is_default else 'was changed'}."

    shown = "••••" if is_hidden else value
    text = f"[{shown}]" if "," in shown else shown
    options = [option, ("delete-config", name) if is_default else ("add-config", f"{name}={text}")]
    return Change(
        question=f"Change {name} of {what}?",
        button="Change",
        command=command_lines.line("configs", "alter", options=options),
        perform=perform,
        done=done,
        back=done,
        operation="IncrementalAlterConfigs",
        resource=audited,
        facts=[
            ("Now", "••••" if is_hidden else entry.value or "empty"),
            ("Then", "the default" if is_default else shown or "empty"),
        ],
    )
