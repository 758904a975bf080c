"""A change and its note are one transaction, and a note never makes a change fail."""

import pytest

from kalda.cluster import paths
from kalda.cluster.history import recording_client
from kalda.cluster.history.author import REQUESTER, RequestAuthor
from kalda.cluster.history.changes import Change, decode_note
from kalda.cluster.history.recording_client import RecordingClient
from kalda.cluster.history.subjects import NOTES
from kalda.zookeeper.errors import BadVersionError, NoAuthError, NodeExistsError
from kalda.zookeeper.port import Check, Create, SetData, Stat
from tests.runtimes import seeded
from tests.unit.cluster.in_memory import InMemoryZooKeeper

TOPIC = paths.topic("orders")
STATE = f"{TOPIC}/partitions/0/state"


class AliceRequest:
    def author(self) -> RequestAuthor:
        return RequestAuthor("CreateTopics", "User:alice", "app", "10.0.0.1")


async def recording() -> RecordingClient:
    zookeeper = InMemoryZooKeeper()
    await zookeeper.cluster()
    client = RecordingClient(await zookeeper.connect(), zookeeper.clock, seeded())
    await client.begin_notes(7)
    return client


async def notes(client: RecordingClient) -> list[Change]:
    """Return the changes of all notes, in the order of their transactions."""
    found = []
    for name in await client.children(NOTES):
        data, stat = await client.get(f"{NOTES}/{name}")
        found += decode_note(name, data, stat.czxid)
    return sorted(found, key=lambda each: each.zxid)


async def test_a_note_has_the_transaction_and_the_author_of_its_change() -> None:
    """The recorder finds out from the transaction which change a note is about."""
    client = await recording()
    token = REQUESTER.set(AliceRequest())
    await client.create(TOPIC, b'{"partitions":{"0":[1]}}')
    REQUESTER.reset(token)
    changed = await client.set(TOPIC, b'{"partitions":{"0":[2]}}')
    await client.delete(TOPIC)

    created, replaced, deleted = await notes(client)
    assert "User:alice (CreateTopics)" == str(created.author)
    assert {"partitions": {"0": [1]}} == created.value
    assert ("broker 7", changed.mzxid) == (str(replaced.author), replaced.zxid)
    assert deleted.is_deleted


async def test_a_change_that_fails_leaves_no_note() -> None:
    client = await recording()
    await client.create(TOPIC)
    with pytest.raises(NodeExistsError):
        await client.create(TOPIC)
    with pytest.raises(BadVersionError):
        await client.set(TOPIC, b"", 5)
    outcomes = await client.multi_many([[Create(TOPIC)], [Create(paths.topic("other"))]])

    assert isinstance(outcomes[0], NodeExistsError)
    assert [paths.topic("other")] == outcomes[1], "the result of the note is not the caller's"
    assert [TOPIC, paths.topic("other")] == [each.path for each in await notes(client)]


async def test_a_change_is_made_without_its_note_if_the_note_cannot_be() -> None:
    """The parent of the notes was deleted by hand; the next change has a note again."""
    client = await recording()
    await client.delete(NOTES)
    await client.create(TOPIC)
    (result,) = (await client.multi_many([[SetData(TOPIC, b"{}")]]))[0]  # type: ignore[misc]

    assert isinstance(result, Stat)
    assert [{}] == [each.value for each in await notes(client)]


async def test_a_broker_that_may_not_write_notes_starts_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The access lists of an earlier cluster may give /admin to another identity."""

    async def refuse(*_: object) -> None:
        raise NoAuthError("no right to create it", NOTES)

    monkeypatch.setattr(recording_client, "ensure_paths", refuse)
    client = await recording()
    await client.create(TOPIC)
    assert await client.exists(NOTES) is None


async def test_where_many_notes_wait_large_ones_leave_the_data_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand large notes would fill the engine, which then takes no changes at all."""
    monkeypatch.setattr(recording_client, "_LARGE_NOTES_MAX", 2)
    monkeypatch.setattr(recording_client, "_LOOKED_AFTER", 4)
    client = await recording()
    for number in range(6):
        await client.create(paths.topic(f"topic-{number}"), b'{"data":"%s"}' % (b"x" * 10_000))

    assert [False] * 4 + [True] * 2 == [each.is_omitted for each in await notes(client)]


async def test_a_controllers_change_has_its_epoch() -> None:
    client = await recording()
    client.controller_epoch = lambda: 4
    await client.create(paths.CONTROLLER_EPOCH, b"4")
    await client.multi([Check(paths.CONTROLLER_EPOCH, 0), Create(TOPIC)])

    assert ["controller 7, epoch 4"] == [str(each.author) for each in await notes(client)]


async def test_states_of_partitions_are_noted_for_requests_only() -> None:
    """The controller makes most of them by itself, by the thousand."""
    client = await recording()
    for path in (TOPIC, f"{TOPIC}/partitions", f"{TOPIC}/partitions/0"):
        await client.create(path)
    await client.create(STATE, b'{"leader":1,"leader_epoch":0,"isr":[1],"controller_epoch":1}')
    REQUESTER.set(AliceRequest())
    await client.set(STATE, b'{"leader":2,"leader_epoch":1,"isr":[2],"controller_epoch":1}', 0)

    assert [(TOPIC, 0), (STATE, 1)] == [(each.path, each.version) for each in await notes(client)]


async def test_secrets_are_not_in_notes() -> None:
    client = await recording()
    secrets = '{"config":{"SCRAM-SHA-256":"salt=a1,stored_key=b2,server_key=c3,iterations=4096","x":"1"}}'
    await client.create(paths.config("users", "alice"), secrets.encode())
    broker = b'{"config":{"listener.name.a.ssl.key.password":"geheim","log.cleaner.threads":"2"}}'
    await client.create(paths.config("brokers", "1"), broker)

    user, settings = await notes(client)
    assert {"config": {"SCRAM-SHA-256": "[hidden], iterations=4096", "x": "1"}} == user.value
    assert {
        "config": {"listener.name.a.ssl.key.password": "[hidden]", "log.cleaner.threads": "2"}
    } == settings.value


@pytest.mark.parametrize("data", [b'"geheim"', b'["geheim"]', b"geheim"])
async def test_data_that_is_no_object_is_not_in_notes(data: bytes) -> None:
    """No program of a cluster writes it, so nothing says which part of it is a secret."""
    client = await recording()
    await client.create(paths.config("users", "alice"), data)
    (note,) = await notes(client)
    assert "geheim" not in str(note.value)


async def test_no_more_notes_are_written_than_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody records them; the changes themselves are made, and the next comparison finds them."""
    monkeypatch.setattr(recording_client, "NOTES_MAX", 10)
    monkeypatch.setattr(recording_client, "_LOOKED_AFTER", 4)
    client = await recording()
    for number in range(30):
        await client.create(paths.topic(f"topic-{number}"))

    assert 12 == len(await client.children(NOTES))
    assert 30 == len(await client.children(paths.TOPICS))
    for name in await client.children(NOTES):
        await client.delete(f"{NOTES}/{name}")
    for number in range(30, 40):
        await client.create(paths.topic(f"topic-{number}"))
    assert await client.children(NOTES), "they are written again when fewer wait"
