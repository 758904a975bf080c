"""Implements the tools of `kalda mcp` that make changes; only a server with ``--allow-writes`` has them.

A change is done in two calls. The first one returns what would happen and a phrase; the second one, with
that phrase as `confirm`, does it. The phrase names the thing and what is lost, so that a host that shows the
arguments to a person shows what is being agreed to; it also pins offsets, which may be others by then. A
phrase counts once, and only if this process returned it: an agent that guesses it gets the question.
"""

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kalda.command.option_types import INT64_MAX
from kalda.common.types import TopicPartition
from kalda.tools.mcp.answers import Answer, is_secret, without_secrets
from kalda.tools.mcp.reads import CallError, between, config_resource

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin


_ASKED_MAX: Final = 100
"""Phrases that may wait for the second call; the oldest is forgotten."""


class WriteTools:
    """The tools that change a cluster.

    Args:
        admin: An open admin client.
    """

    def __init__(self, admin: "AsyncAdmin") -> None:
        self._admin: Final = admin
        self._asked: Final[dict[str, None]] = {}
        """The phrases that were returned and not used."""

    async def create_topic(
        self,
        topic: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        settings: dict[str, str] | None = None,
        confirm: str = "",
    ) -> Answer:
        """Create a topic; partitions and replicas are the brokers' defaults where they are not given.

        Without `confirm` nothing is changed: the answer has the phrase to call again with.
        """
        from kalda.clients.admin.topics import NewTopic

        new = NewTopic(topic, partitions, replication_factor, config=settings or {})
        texts = [
            *([] if partitions is None else [f"partitions={partitions}"]),
            *([] if replication_factor is None else [f"replication_factor={replication_factor}"]),
            *_assignments(without_secrets(settings or {})),
        ]
        phrase = f"create topic {topic}{': ' if texts else ''}{', '.join(texts)}"
        if not self._is_confirmed(phrase, confirm):
            checked = (await self._admin.create_topics([new], validate_only=True))[topic]
            would = {"partitions": checked.partitions, "replication_factor": checked.replication_factor}
            return self._asks(phrase, confirm, would=would)
        made = (await self._admin.create_topics([new]))[topic]
        return _done(phrase, partitions=made.partitions, replication_factor=made.replication_factor)

    async def delete_topic(self, topic: str, confirm: str = "") -> Answer:
        """Delete a topic and all its records.

        Without `confirm` nothing is changed: the answer has the phrase to call again with.
        """
        phrase = f"delete topic {topic} and all its records"
        if not self._is_confirmed(phrase, confirm):
            found = (await self._admin.describe_topics([topic]))[topic]
            return self._asks(phrase, confirm, would={"partitions": len(found.partitions)})
        await self._admin.delete_topics([topic])
        return _done(phrase)

    async def alter_config(
        self,
        kind: str,
        name: str = "",
        set_values: dict[str, str] | None = None,
        delete: list[str] | None = None,
        confirm: str = "",
    ) -> Answer:
        """Set settings of a topic, a broker or a group, and return others to their defaults (`delete`).

        `kind` and `name` are as in describe_configs. Secrets cannot be set here. Without `confirm` the change
        is only checked: the answer has the values of now and the phrase to call again with.
        """
        from kalda.clients.admin.configs import AlterConfigOp

        values, names = set_values or {}, delete or []
        if not values and not names:
            raise CallError("nothing to change: give set_values, or delete")
        secrets = sorted(filter(is_secret, (*values, *names)))
        if secrets:
            raise CallError(f"{', '.join(secrets)}: secrets are set with `kalda configs alter` alone")
        resource = config_resource(kind, name)
        changes = [
            *(AlterConfigOp.set(key, value) for key, value in values.items()),
            *(AlterConfigOp.delete(key) for key in names),
        ]
        texts = [*_assignments(values), *(f"{shlex.quote(key)} to default" for key in names)]
        phrase = f"alter {resource}: {', '.join(texts)}"
        if not self._is_confirmed(phrase, confirm):
            await self._admin.incremental_alter_configs({resource: changes}, validate_only=True)
            found = (await self._admin.describe_configs({resource: [*values, *names]}))[resource]
            return self._asks(phrase, confirm, now={key: each.value for key, each in found.items()})
        await self._admin.incremental_alter_configs({resource: changes})
        return _done(phrase)

    async def reset_offsets(
        self,
        group: str,
        topic: str,
        to: str = "",
        offsets: dict[str, int] | None = None,
        timestamp_ms: int | None = None,
        confirm: str = "",
    ) -> Answer:
        """Set the committed offsets of a group without members on a topic.

        Give one of: `to` (earliest or latest), `timestamp_ms`, or `offsets` by partition ({"0": 42}). Without
        `confirm` nothing is changed: the answer has the offsets and the phrase to call again with.
        """
        from kalda.clients.admin.partitions import OffsetSpec

        if sum((bool(to), offsets is not None, timestamp_ms is not None)) != 1:
            raise CallError("give one of: to (earliest or latest), timestamp_ms, offsets")
        if timestamp_ms is not None:
            between("timestamp_ms", timestamp_ms, 0, INT64_MAX)
        if to and to not in ("earliest", "latest"):
            raise CallError(f"to={to} is not allowed: it takes earliest or latest")
        found = (await self._admin.describe_topics([topic]))[topic]
        partitions = [TopicPartition(topic, each.partition) for each in found.partitions]
        wanted: dict[TopicPartition, int]
        if offsets is not None:
            wanted = _of_partitions(topic, offsets, partitions)
        else:
            latest = await self._admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()))
            spec = OffsetSpec.latest()
            if timestamp_ms is not None:
                spec = OffsetSpec.for_timestamp(timestamp_ms)
            elif to == "earliest":
                spec = OffsetSpec.earliest()
            chosen = await self._admin.list_offsets(dict.fromkeys(partitions, spec))
            wanted = {
                each: chosen[each].offset if chosen[each].is_found else latest[each].offset
                for each in partitions
            }
        texts = ", ".join(f"{each.partition}={offset}" for each, offset in sorted(wanted.items()))
        phrase = f"reset group {group} on {topic} to {texts}"
        if not self._is_confirmed(phrase, confirm):
            stored = (await self._admin.list_consumer_group_offsets([group]))[group].results
            now = {
                str(each.partition): value.offset
                for each, value in sorted(stored.items())
                if each.topic == topic and value is not None
            }
            return self._asks(phrase, confirm, now=now)
        outcome = (await self._admin.alter_consumer_group_offsets({group: wanted}))[group]
        outcome.raise_for_errors()
        return _done(phrase)

    async def delete_records(self, topic: str, before_offsets: dict[str, int], confirm: str = "") -> Answer:
        """Delete the records of partitions in front of offsets ({"0": 42}); -1 stands for the end.

        Without `confirm` nothing is changed: the answer has the phrase to call again with.
        """
        from kalda.clients.admin.partitions import OffsetSpec

        found = (await self._admin.describe_topics([topic]))[topic]
        partitions = [TopicPartition(topic, each.partition) for each in found.partitions]
        wanted = _of_partitions(topic, before_offsets, partitions)
        first = await self._admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.earliest()))
        last = await self._admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.latest()))
        pinned = {each: last[each].offset if value == -1 else value for each, value in wanted.items()}
        texts = ", ".join(f"{each.partition} before {value}" for each, value in sorted(pinned.items()))
        phrase = f"delete records of {topic}: {texts}"
        if not self._is_confirmed(phrase, confirm):
            lost = {str(each.partition): max(0, pinned[each] - first[each].offset) for each in sorted(pinned)}
            return self._asks(phrase, confirm, would={"offsets_lost": lost})
        await self._admin.delete_records(pinned)
        return _done(phrase)

    async def delete_group(self, group: str, confirm: str = "") -> Answer:
        """Delete a group without members, and its committed offsets.

        Without `confirm` nothing is changed: the answer has the phrase to call again with.
        """
        phrase = f"delete group {group} and its offsets"
        if not self._is_confirmed(phrase, confirm):
            described = (await self._admin.describe_consumer_groups([group]))[group]
            return self._asks(phrase, confirm, now={"state": described.state.value})
        (await self._admin.delete_consumer_groups([group])).raise_for_errors()
        return _done(phrase)

    async def elect_preferred_leaders(self, confirm: str = "") -> Answer:
        """Let the preferred replicas lead all partitions where they are in sync.

        Without `confirm` nothing is changed: the answer has the phrase to call again with.
        """
        from kalda.clients.admin.partitions import ElectionType

        phrase = "elect the preferred leaders of all partitions"
        if not self._is_confirmed(phrase, confirm):
            return self._asks(phrase, confirm)
        await self._admin.elect_leaders(ElectionType.PREFERRED, outcomes=True)
        return _done(phrase)

    def _is_confirmed(self, phrase: str, confirm: str) -> bool:
        """Return whether the call has the phrase of this change, which was returned before; it is used up."""
        if confirm != phrase or phrase not in self._asked:
            return False
        del self._asked[phrase]
        return True

    def _asks(self, phrase: str, confirm: str, **facts: object) -> Answer:
        """Return what a call without the right phrase gets: nothing was changed."""
        self._asked.pop(phrase, None)
        self._asked[phrase] = None
        if len(self._asked) > _ASKED_MAX:
            del self._asked[next(iter(self._asked))]
        answer: Answer = {"is_changed": False, **facts, "to_do_it": {"confirm": phrase}}
        if confirm:
            answer["note"] = "confirm is not a phrase that was returned for this change; nothing was changed"
        return answer


def _assignments(settings: Mapping[str, str]) -> list[str]:
    """Return settings as ``name=value``, quoted where a blank could make one look like two."""
    return [f"{shlex.quote(key)}={shlex.quote(value)}" for key, value in settings.items()]


def _done(phrase: str, **facts: object) -> Answer:
    return {"is_changed": True, "done": phrase, **facts}


def _of_partitions(
    topic: str, offsets: Mapping[str, int], partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    if not offsets:
        raise CallError('no partition is named; write {"0": 42}')
    known = {str(each.partition): each for each in partitions}
    unknown = sorted(offsets.keys() - known.keys())
    if unknown:
        raise CallError(f"topic {topic} has no partition {', '.join(unknown)}; it has {len(partitions)}")
    return {
        known[name]: between(f"offset of {name}", value, -1, INT64_MAX) for name, value in offsets.items()
    }


def audited(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of a call as the audit log has them: without values of secrets."""
    return {
        name: without_secrets({str(key): str(each) for key, each in value.items()})
        if isinstance(value, dict)
        else value
        for name, value in arguments.items()
    }
