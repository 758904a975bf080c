"""What the recorder of the history does with notes of other programs, and with large ones."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from kalda.broker.history import history_recorder
from kalda.broker.history.history_recorder import HistoryRecorder
from kalda.broker.history.history_topic import MESSAGE_BYTES_MAX
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.cluster import paths
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.history.changes import Change, decode_record
from kalda.cluster.history.recording_client import RecordingClient
from kalda.cluster.history.subjects import NOTES
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.zookeeper.errors import NoAuthError
from tests.runtimes import seeded
from tests.unit.cluster.in_memory import InMemoryZooKeeper

TOPIC = paths.topic("orders")


class Recorded:
    """A recorder that leads, and the topic that it appends to."""

    def __init__(self, client: RecordingClient, zookeeper: InMemoryZooKeeper) -> None:
        self.client = client
        self.records: list[CoordinatorRecord] = []
        self.recorder = HistoryRecorder(
            ClusterStore(client, zookeeper.clock, seeded()),
            MetadataCache(),
            None,  # type: ignore[arg-type]
            zookeeper.clock,
            seeded(),
            lambda name: False,
        )
        self.shard = self.recorder.new_shard(0)
        self.shard.on_loaded(self)  # type: ignore[arg-type]

    @classmethod
    async def make(cls) -> "Recorded":
        zookeeper = InMemoryZooKeeper()
        await zookeeper.cluster()
        client = RecordingClient(await zookeeper.connect(), zookeeper.clock, seeded())
        await client.begin_notes(7)
        recorded = cls(client, zookeeper)
        await recorded.round()
        return recorded

    def write(self, operation: Callable[[], Result[Any]]) -> Pending[Any]:
        records = operation().records
        if sum(len(each.key) + len(each.value or b"") for each in records) > MESSAGE_BYTES_MAX:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE)
        for each in records:
            self.records.append(each)
            self.shard.replay(len(self.records) - 1, -1, -1, each)
        return Pending.of(None)

    async def round(self) -> None:
        await self.recorder._round()

    def last(self, path: str) -> Change:
        found = [decode_record(each.key, each.value or b"") for each in self.records]
        return [each for each in found if isinstance(each, Change) and each.path == path][-1]

    async def close(self) -> None:
        self.recorder._shard = None
        await self.recorder._unfollow()


async def test_a_note_that_cannot_be_deleted_does_not_end_the_recording() -> None:
    """Another program made it, with a znode below it."""
    recorded = await Recorded.make()
    await recorded.client.create(f"{NOTES}/theirs", b"garbage")
    await recorded.client.create(f"{NOTES}/theirs/child")
    await recorded.client.create(TOPIC, b'{"partitions":{"0":[1]}}')
    await recorded.round()

    assert "broker 7" == str(recorded.last(TOPIC).author)
    assert ["theirs"] == await recorded.client.children(NOTES)
    await recorded.client.delete(TOPIC)
    await recorded.round()
    assert recorded.last(TOPIC).is_deleted
    await recorded.close()


async def test_a_note_that_cannot_be_read_does_not_end_the_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded = await Recorded.make()
    await recorded.client.create(f"{NOTES}/theirs", b"garbage")
    await recorded.client.create(TOPIC, b'{"partitions":{"0":[1]}}')
    get_many = recorded.client.get_many

    async def without_access(wanted: list[str], watch: Any = None) -> Any:
        if f"{NOTES}/theirs" in wanted:
            raise NoAuthError("theirs")
        return await get_many(wanted, watch)

    monkeypatch.setattr(recorded.client, "get_many", without_access)
    await recorded.round()
    assert "broker 7" == str(recorded.last(TOPIC).author)
    await recorded.close()


async def test_a_long_name_of_an_author_is_cut() -> None:
    """A client chooses its client id, and each change of a note is a record with its author."""
    recorded = await Recorded.make()
    names = [paths.topic(f"t{number}") for number in range(30)]
    note = {
        "version": 1,
        "time": 1,
        "author": {"broker": 1, "request": "CreateTopics", "client_id": "x" * 500_000},
        "changes": [{"path": name, "data": {}} for name in names],
    }
    await recorded.client.create(f"{NOTES}/large", json.dumps(note).encode())
    await recorded.round()

    author = recorded.last(names[-1]).author
    assert author is not None
    assert author.request is not None
    assert author.request.client_id is not None
    assert 257 == len(author.request.client_id)
    await recorded.close()


async def test_changes_that_are_too_many_for_one_batch_are_recorded_in_several() -> None:
    recorded = await Recorded.make()
    names = [paths.topic(f"t{number}") for number in range(12_000)]
    note = {
        "version": 1,
        "author": {"broker": 1, "request": "r" * 200, "user": "u" * 200, "host": "h" * 200},
        "changes": [{"path": name, "data": {}} for name in names],
    }
    await recorded.client.create(f"{NOTES}/large", json.dumps(note).encode())
    await recorded.round()

    assert names[-1] == recorded.last(names[-1]).path
    await recorded.close()


async def test_data_that_no_batch_takes_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines may be set to take larger znodes than the topic takes batches."""
    recorded = await Recorded.make()
    monkeypatch.setattr(history_recorder, "_RECORD_BYTES_MAX", 10_000)
    await recorded.client.create(TOPIC, json.dumps({"partitions": {"0": ["x" * 20_000]}}).encode())
    await recorded.round()

    assert recorded.last(TOPIC).is_omitted
    await recorded.close()


@pytest.mark.parametrize("nested", ["[" * 900 + "]" * 900, '{"a":' * 600 + "1" + "}" * 600])
async def test_data_that_is_nested_deeply_is_not_recorded(nested: str) -> None:
    """Nothing of a cluster writes it, and it would be read recursively."""
    recorded = await Recorded.make()
    await recorded.client.create(paths.config("topics", "t"), f'{{"config":{nested}}}'.encode())
    await recorded.client.create(TOPIC, b'{"partitions":{"0":[1]}}')
    await recorded.round()

    assert "broker 7" == str(recorded.last(TOPIC).author)
    assert str(recorded.last(paths.config("topics", "t")).value).endswith("bytes that are nested too deeply")
    await recorded.close()
