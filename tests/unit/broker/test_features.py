"""What the znode of finalised features says."""

import asyncio
from dataclasses import replace

import pytest

from kalda.broker.metadata.features import (
    SUPPORTED,
    Features,
    FeatureUpdate,
    Levels,
    UnsupportedFeaturesError,
    UpgradeType,
    decode_features,
    encode_features,
    updated,
)
from kalda.cluster import paths
from kalda.cluster.registered_brokers import RegisteredBrokers
from kalda.cluster.schema import BrokerInfo, ListenerEndpoint
from kalda.common.errors import ApiError, ErrorCode
from tests.runtimes import seeded
from tests.unit.cluster.in_memory import InMemoryZooKeeper


@pytest.mark.parametrize(
    ("data", "levels"),
    [
        (b'{"version":2,"status":1,"features":{"transaction.version":2}}', {"transaction.version": 2}),
        (b'{"version":2,"status":1,"features":{"transaction.version":0,"streams.version":0}}', {}),
        (b'{"version":3,"status":0,"features":[]', {}),
        (b'{"version":2,"status":0,"features":{"transaction.version":2}}', {}),
        (
            b'{"version":1,"status":1,"features":{},"kalda":{"transaction.version":2}}',
            {"transaction.version": 2},
        ),
        (b'{"version":1,"status":1,"features":{},"kalda":[]}', {}),
        (b'{"version":1,"status":1,"features":{},"kalda":{"transaction.version":null}}', {}),
        (
            b'{"version":1,"status":1,"features":{"transaction.version":{"max_version_level":1}}}',
            {"transaction.version": 1},
        ),
        (b"", {}),
        (b"[]", {}),
        (b'{"version":2,"status":1,"features":[]}', {}),
        (b'{"version":2,"status":1,"features":{"transaction.version":"x"}}', {}),
        (b'{"version":2,"status":1,"features":{"transaction.version":1e999}}', {}),
        (b'{"version":2,"status":1,"features":{"transaction.version":2,"streams.version":70000}}', {}),
        (b'{"version":2,"status":1,"features":{"transaction.version":2,"streams.version":-70000}}', {}),
        (b"[" * 100_000, {}),
    ],
)
def test_levels_are_read_as_kafka_writes_them(data: bytes, levels: dict[str, int]) -> None:
    assert levels == decode_features(data)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"version":2,"status":1,"features":{"transaction.version":9,"group.version":1}}', "transaction"),
        (b'{"version":2,"status":1,"features":{"streams.version":1}}', "streams.version=1"),
        (b'{"version":3,"status":1,"features":{}}', "/feature has format version 3, .* up to version 2"),
    ],
)
async def test_a_broker_of_an_older_release_neither_starts_nor_goes_on(data: bytes, found: str) -> None:
    """It would write older records beside those of the feature, as if it were not in force."""
    server = InMemoryZooKeeper()
    running, other = await features_of(server), await features_of(server)
    await running.start()
    await (await server.connect()).set(paths.FEATURE, data)
    with pytest.raises(UnsupportedFeaturesError, match=found):
        await other.start()
    with pytest.raises(UnsupportedFeaturesError, match=found):
        await running.run()


def test_the_error_names_what_is_supported() -> None:
    with pytest.raises(UnsupportedFeaturesError) as caught:
        decode_features(encode_features({"transaction.version": 9, "streams.version": 1, "group.version": 1}))
    assert (
        "/feature has features in force that this release of Kalda does not support: streams.version=1, "
        "transaction.version=9; it supports group.version 0 to 1, share.version 0 to 1, "
        "transaction.version 0 to 2. Start"
    ) in str(caught.value)


def test_what_is_written_is_read() -> None:
    assert {"transaction.version": 2} == decode_features(encode_features({"transaction.version": 2}))


def test_apache_kafka_reads_what_is_written_as_no_features() -> None:
    """Its brokers with ZooKeeper exit on features that they do not support; those before 3.3 on version 2."""
    assert (
        b'{"version":1,"status":1,"features":{},"kalda":{"group.version":1,"transaction.version":2}}'
        == encode_features({"group.version": 1, "transaction.version": 2})
    )


async def features_of(server: InMemoryZooKeeper) -> Features:
    """Return the features of one broker, which knows the registrations."""
    cluster = await server.cluster()
    brokers = RegisteredBrokers(cluster)
    await brokers.start()
    return Features(cluster.zookeeper, seeded(), brokers)


async def test_an_apache_kafka_ends_the_features() -> None:
    """Its brokers cannot follow them; clients learn of the end by the version of the znode."""
    server = InMemoryZooKeeper()
    cluster = await server.cluster()
    brokers = RegisteredBrokers(cluster)
    await brokers.start()
    features = Features(cluster.zookeeper, seeded(), brokers)
    await features.start()
    assert (2, 0) == (features.transaction_version, features.epoch)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(each.run()) for each in (brokers, features)]
        await settle()
        await cluster.register_broker(BrokerInfo(1, (ListenerEndpoint("PLAINTEXT", "host", 9092),)))
        await settle()
        assert ({}, 1) == (features.levels, features.epoch)
        data, _ = await cluster.zookeeper.get(paths.FEATURE)
        assert encode_features({}) == data
        # A former release of Kalda, or an operator by hand.
        await cluster.zookeeper.set(paths.FEATURE, encode_features({"transaction.version": 2}))
        assert 0 == features.transaction_version
        await settle()
        assert ({}, 3) == (features.levels, features.epoch)
        await cluster.unregister_broker(1)
        await settle()
        assert 0 == features.transaction_version, "they come back only by a request"
        for task in running:
            task.cancel()


async def test_a_cluster_of_a_kafka_without_features_gets_none() -> None:
    """Kafka before 2.7 wrote no such znode. The cluster may have none of its brokers now."""
    server = InMemoryZooKeeper()
    cluster = await server.cluster()
    await cluster.cluster_id()
    features = await features_of(server)
    await features.start()
    assert {} == features.levels
    data, _ = await cluster.zookeeper.get(paths.FEATURE)
    assert encode_features({}) == data


async def test_a_request_rewrites_what_a_former_release_wrote() -> None:
    """Apache Kafka cannot read it, and a request that changes no level is how an operator gets rid of it."""
    server = InMemoryZooKeeper()
    zookeeper = await server.connect()
    await zookeeper.create(paths.FEATURE, b'{"version":2,"status":1,"features":{"transaction.version":2}}')
    features = await features_of(server)
    await features.start()
    assert 2 == features.transaction_version
    up = FeatureUpdate("transaction.version", 2, UpgradeType.UPGRADE)
    await features.update([up], BROKERS, validates_only=False)
    data, _ = await zookeeper.get(paths.FEATURE)
    assert encode_features({"transaction.version": 2}) == data


async def test_the_first_broker_finalises_and_the_others_find_it() -> None:
    server = InMemoryZooKeeper()
    first, second = await features_of(server), await features_of(server)
    assert (0, -1) == (first.transaction_version, first.epoch)
    await first.start()
    await second.start()
    assert 2 == first.transaction_version == second.transaction_version
    assert 0 == second.epoch


async def test_what_was_decided_stays_and_changes_are_followed() -> None:
    """A cluster that came from an older one finalises nothing by itself."""
    server = InMemoryZooKeeper()
    zookeeper = await server.connect()
    await zookeeper.create(paths.FEATURE, encode_features({}))
    features = await features_of(server)
    await features.start()
    assert 0 == features.transaction_version
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(features.run())
        await zookeeper.set(paths.FEATURE, encode_features({"transaction.version": 2}))
        await settle()
        assert (2, 1) == (features.transaction_version, features.epoch)
        await zookeeper.delete(paths.FEATURE)
        await settle()
        assert (0, -1) == (features.transaction_version, features.epoch)
        task.cancel()


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


BROKERS: dict[int, Levels] = {1: SUPPORTED, 2: SUPPORTED}


@pytest.mark.parametrize(
    ("present", "level", "kind", "expected"),
    [
        (2, 1, UpgradeType.SAFE_DOWNGRADE, {"transaction.version": 1}),
        (2, 1, UpgradeType.UNSAFE_DOWNGRADE, {"transaction.version": 1}),
        (2, 0, UpgradeType.SAFE_DOWNGRADE, {}),
        (1, 2, UpgradeType.UPGRADE, {"transaction.version": 2}),
        (2, 2, UpgradeType.UPGRADE, {"transaction.version": 2}),
        (2, 2, UpgradeType.SAFE_DOWNGRADE, {"transaction.version": 2}),
        (0, 2, UpgradeType.UPGRADE, {"transaction.version": 2}),
    ],
)
def test_a_level_goes_up_or_with_leave_down(
    present: int, level: int, kind: UpgradeType, expected: dict[str, int]
) -> None:
    update = FeatureUpdate("transaction.version", level, kind)
    before = {"transaction.version": present} if present else {}
    assert expected == updated(before, [update], BROKERS)


@pytest.mark.parametrize(
    ("name", "level", "kind", "reason"),
    [
        ("transaction.version", 1, 1, "without setting the upgrade type"),
        ("transaction.version", 0, 1, "without setting the upgrade type"),
        ("transaction.version", 3, 1, "The controller only supports versions 0-2"),
        ("transaction.version", -1, 2, "less than 0"),
        ("transaction.version", 1, 0, "the given upgrade type"),
        ("transaction.version", 1, 9, "the given upgrade type"),
        ("group.version", 1, 2, "to a newer version"),
        ("metadata.version", 20, 1, "The controller does not support this feature"),
        ("", 1, 1, "The controller does not support this feature"),
        ("nope", 0, 2, "Feature nope not found"),
        ("nope", 0, 1, "Feature nope not found"),
    ],
)
def test_what_may_not_be_changed_is_told_with_a_reason(name: str, level: int, kind: int, reason: str) -> None:
    with pytest.raises(ApiError, match=reason) as caught:
        updated({"transaction.version": 2}, [FeatureUpdate(name, level, kind)], BROKERS)
    assert ErrorCode.INVALID_UPDATE_VERSION == caught.value.code


def test_a_finalised_feature_that_no_broker_supports_can_be_removed() -> None:
    """A newer broker may have finalized it before the cluster went back to this release."""
    update = FeatureUpdate("streams.version", 0, UpgradeType.SAFE_DOWNGRADE)
    assert {} == updated({"streams.version": 1}, [update], BROKERS)


def test_no_level_is_finalised_that_a_live_broker_cannot_run() -> None:
    """It would answer producers by rules that the others no longer go by."""
    update = FeatureUpdate("transaction.version", 2, UpgradeType.UPGRADE)
    older: dict[int, Levels] = {1: SUPPORTED, 2: {"transaction.version": (0, 1)}}
    with pytest.raises(ApiError, match="Broker 2 only supports versions 0-1"):
        updated({}, [update], older)
    with pytest.raises(ApiError, match="Broker 3 does not support this feature"):
        updated({}, [update], {3: {}})
    assert {} == updated({"transaction.version": 2}, [replace(update, level=0, upgrade_type=2)], {3: {}})


async def test_an_update_is_written_whole_or_not_at_all() -> None:
    server = InMemoryZooKeeper()
    zookeeper = await server.connect()
    await zookeeper.create(paths.FEATURE, encode_features({"transaction.version": 1, "group.version": 1}))
    features, other = await features_of(server), await features_of(server)
    await features.start()
    await other.start()
    up = FeatureUpdate("transaction.version", 2, UpgradeType.UPGRADE)
    with pytest.raises(ApiError):
        await features.update([up, replace(up, level=9)], BROKERS, validates_only=False)
    await features.update([up], BROKERS, validates_only=True)
    assert (1, 0) == (features.transaction_version, features.epoch)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(other.run())
        await features.update([up], BROKERS, validates_only=False)
        assert (2, 1) == (features.transaction_version, features.epoch), "known to whoever wrote it"
        await settle()
        assert (2, 1) == (other.transaction_version, other.epoch)
        task.cancel()
    data, _ = await zookeeper.get(paths.FEATURE)
    assert data == encode_features({"transaction.version": 2, "group.version": 1}), "others' features stay"
    await features.update([up], BROKERS, validates_only=False)
    assert 1 == features.epoch, "nothing changes, nothing is written"


async def test_features_that_nobody_has_decided_on_can_be_updated() -> None:
    server = InMemoryZooKeeper()
    features = await features_of(server)
    await features.update(
        [FeatureUpdate("group.version", 1, UpgradeType.UPGRADE)], BROKERS, validates_only=False
    )
    assert {"group.version": 1} == features.levels
