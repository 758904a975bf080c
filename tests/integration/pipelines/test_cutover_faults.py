"""Clusters that fail while writers are held."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kalda import Admin
from kalda.clients.admin.quotas import quota_entity
from kalda.pipelines.cutover.cutover import HeldError
from kalda.pipelines.cutover.journal import Journal, Phase
from kalda.testing import Cluster
from tests.integration.pipelines.cutover_scene import Scene

HELD = {quota_entity({"user": None, "client-id": None}): {"producer_byte_rate": 1.0}}


SHORT = {
    "default.api.timeout.ms": "5000",
    "max.block.ms": "5000",
    "request.timeout.ms": "4000",
    "delivery.timeout.ms": "5000",
}
"""What is in vain here ends soon; what is not has the time that a busy machine needs."""


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(1, directory=tmp_path / "old") as cluster:
        yield cluster


@pytest.fixture
def new(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(1, directory=tmp_path / "new") as cluster:
        yield cluster


@pytest.fixture
def scene(old: Cluster, new: Cluster, topic_name: Callable[[str], str], tmp_path: Path) -> Scene:
    return Scene(old.bootstrap, new.bootstrap, topic_name("cutover"), tmp_path, SHORT)


def quotas_of(cluster: Cluster) -> object:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        return admin.describe_client_quotas()


def at(phase: Phase, action: Callable[[], None]) -> Callable[[Journal], None]:
    def observe(journal: Journal) -> None:
        if journal.phase is phase:
            action()

    return observe


def test_a_target_that_is_full_lets_writers_go_on(scene: Scene, old: Cluster, new: Cluster) -> None:
    """What came since the lag was small does not fit."""
    scene.create()
    scene.fill(scene.old, range(100))
    scene.commit(scene.old, 50)

    def fill_up() -> None:
        scene.fill(scene.old, range(100, 200))
        new.fill_disk(new.running[0])

    journal = scene.run(is_patient=False, observe=at(Phase.PLAN_FENCE, fill_up))
    assert Phase.ABORTED is journal.phase
    assert "writers were held for 60 s (--pause-max); " in journal.reason
    assert {} == quotas_of(old)
    new.make_room(new.running[0])
    assert Phase.SWITCHED is scene.run().phase
    assert 150 == len(scene.rest(scene.new))


def test_a_source_that_dies_keeps_its_fence_until_it_is_back(scene: Scene, old: Cluster) -> None:
    """The message says so, and --abort takes the fence down."""
    scene.create()
    scene.fill(scene.old, range(100))
    broker = old.running[0]
    with pytest.raises(HeldError, match="writers are still held in old; when it is back, use --abort"):
        scene.run(is_patient=False, observe=at(Phase.GROUPS, lambda: old.kill(broker)))
    old.start(broker)
    assert HELD == quotas_of(old)
    assert Phase.ABORTED is scene.abort().phase
    assert {} == quotas_of(old)
    assert Phase.SWITCHED is scene.run().phase


def test_a_source_that_is_away_for_a_while_is_waited_for(scene: Scene, old: Cluster) -> None:
    scene.create()
    scene.fill(scene.old, range(100))
    scene.commit(scene.old, 50)
    broker = old.running[0]
    journal = scene.run(observe=at(Phase.GROUPS, lambda: old.restart(broker)))
    assert Phase.SWITCHED is journal.phase
    assert 50 == len(scene.rest(scene.new))
