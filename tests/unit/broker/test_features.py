"""What the znode of finalised features says."""

import asyncio

import pytest

from kalda.broker.features import Features, decode_features, encode_features
from kalda.coordination import paths
from tests.unit.coordination.in_memory import InMemoryCoordination


@pytest.mark.parametrize(
    ("data", "levels"),
    [
        (b'{"version":2,"status":1,"features":{"transaction.version":2}}', {"transaction.version": 2}),
        (b'{"version":2,"status":1,"features":{"transaction.version":9}}', {"transaction.version": 2}),
        (b'{"version":2,"status":1,"features":{"transaction.version":0,"share.version":1}}', {}),
        (b'{"version":2,"status":0,"features":{"transaction.version":2}}', {}),
        (
            b'{"version":1,"status":1,"features":{"transaction.version":{"max_version_level":1}}}',
            {"transaction.version": 1},
        ),
        (b"", {}),
        (b"[]", {}),
        (b'{"version":2,"status":1,"features":[]}', {}),
        (b'{"version":2,"status":1,"features":{"transaction.version":"x"}}', {}),
    ],
)
def test_levels_are_read_as_kafka_writes_them(data: bytes, levels: dict[str, int]) -> None:
    assert levels == decode_features(data)


def test_what_is_written_is_read() -> None:
    assert {"transaction.version": 2} == decode_features(encode_features({"transaction.version": 2}))


async def test_the_first_broker_finalises_and_the_others_find_it() -> None:
    server = InMemoryCoordination()
    first, second = Features(await server.connect()), Features(await server.connect())
    assert (0, -1) == (first.transaction_version, first.epoch)
    await first.start()
    await second.start()
    assert 2 == first.transaction_version == second.transaction_version
    assert 0 == second.epoch


async def test_what_was_decided_stays_and_changes_are_followed() -> None:
    """A cluster that came from an older one finalises nothing by itself."""
    server = InMemoryCoordination()
    coordination = await server.connect()
    await coordination.create(paths.FEATURE, encode_features({}))
    features = Features(coordination)
    await features.start()
    assert 0 == features.transaction_version
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(features.run())
        await coordination.set(paths.FEATURE, encode_features({"transaction.version": 2}))
        await settle()
        assert (2, 1) == (features.transaction_version, features.epoch)
        await coordination.delete(paths.FEATURE)
        await settle()
        assert (0, -1) == (features.transaction_version, features.epoch)
        task.cancel()


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)
