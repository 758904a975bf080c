"""A change of `kalda mcp` is what the phrase says that was returned for it, once."""

from types import SimpleNamespace
from typing import Any

import pytest

from kalda.tools.mcp.writes import WriteTools


class Admin:
    """Notes down what is changed."""

    def __init__(self) -> None:
        self.changes: list[Any] = []

    async def create_topics(self, new: list[Any], *, validate_only: bool = False) -> dict[str, Any]:
        if not validate_only:
            self.changes.append((new[0].name, new[0].partitions))
        return {new[0].name: SimpleNamespace(partitions=new[0].partitions, replication_factor=1)}

    async def elect_leaders(self, *_: object, **__: object) -> None:
        self.changes.append("elected")

    async def incremental_alter_configs(self, changes: Any, *, validate_only: bool = False) -> None:
        if not validate_only:
            self.changes.append(changes)

    async def describe_configs(self, wanted: dict[Any, Any]) -> dict[Any, dict[str, Any]]:
        return {resource: {} for resource in wanted}


@pytest.fixture
def admin() -> Admin:
    return Admin()


@pytest.fixture
def tools(admin: Admin) -> WriteTools:
    return WriteTools(admin)  # type: ignore[arg-type]


async def test_a_phrase_that_was_not_returned_changes_nothing(tools: WriteTools, admin: Admin) -> None:
    """An agent that knows the form of phrases must still show the person what would happen."""
    guessed = {"confirm": "elect the preferred leaders of all partitions"}
    asked = await tools.elect_preferred_leaders(**guessed)
    assert not asked["is_changed"]
    assert [] == admin.changes
    assert guessed == asked["to_do_it"]
    assert (await tools.elect_preferred_leaders(**asked["to_do_it"]))["is_changed"]
    assert ["elected"] == admin.changes


async def test_a_phrase_is_good_for_one_change(tools: WriteTools, admin: Admin) -> None:
    asked = await tools.elect_preferred_leaders()
    await tools.elect_preferred_leaders(**asked["to_do_it"])
    assert not (await tools.elect_preferred_leaders(**asked["to_do_it"]))["is_changed"]
    assert ["elected"] == admin.changes


async def test_a_phrase_is_for_the_arguments_that_it_was_returned_for(
    tools: WriteTools, admin: Admin
) -> None:
    asked = await tools.create_topic("made", partitions=1, settings={"retention.ms": "1"})
    for others in ({"partitions": 10_000}, {"replication_factor": 1}, {"settings": {"retention.ms": "2"}}):
        arguments: Any = {"partitions": 1, "settings": {"retention.ms": "1"}, **others}
        assert not (await tools.create_topic("made", **arguments, **asked["to_do_it"]))["is_changed"]
    assert [] == admin.changes
    assert "create topic made: partitions=1, retention.ms=1" == asked["to_do_it"]["confirm"]
    await tools.create_topic("made", partitions=1, settings={"retention.ms": "1"}, **asked["to_do_it"])
    assert [("made", 1)] == admin.changes


async def test_values_cannot_look_like_other_settings(tools: WriteTools, admin: Admin) -> None:
    asked = await tools.alter_config("topic", "t", {"a": "1, b=2"})
    other = await tools.alter_config("topic", "t", {"a": "1", "b": "2"}, **asked["to_do_it"])
    assert not other["is_changed"]
    assert [] == admin.changes


async def test_phrases_that_are_not_used_are_forgotten(tools: WriteTools, admin: Admin) -> None:
    first = await tools.create_topic("t0")
    for number in range(1, 200):
        await tools.create_topic(f"t{number}")
    assert not (await tools.create_topic("t0", **first["to_do_it"]))["is_changed"]
