"""A cut-over between two brokers and back, with the process ended at each step."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kalda import Admin, NewTopic, Producer
from kalda.clients.admin.quotas import QuotaAlteration, QuotaEntity, quota_entity
from kalda.pipelines.cutover.cutover import CutoverError, backward, forward
from kalda.pipelines.cutover.journal import Journal, Phase
from kalda.pipelines.mirror.policy import MirrorError, RenameRule
from kalda.testing import KaldaProcess
from tests.integration.pipelines.cutover_scene import Killed, Scene

EVERYONE = quota_entity({"user": None, "client-id": None})


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The source; not the shared broker, because all of its writers are held."""
    with KaldaProcess(tmp_path_factory.mktemp("old") / "data") as process:
        yield process.bootstrap


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with KaldaProcess(tmp_path_factory.mktemp("new") / "data") as process:
        yield process.bootstrap


@pytest.fixture
def scene(old: str, new: str, topic_name: Callable[[str], str], tmp_path: Path) -> Scene:
    return Scene(old, new, topic_name("cutover"), tmp_path)


def test_clients_go_and_come_back_although_the_process_ends_at_each_step(scene: Scene) -> None:
    """Groups read on both sides what is left for them, in transactions or not, and no quota stays."""
    scene.create()
    scene.fill(scene.old, range(100))
    scene.transactions(scene.old)
    # Offset 5 of partition 1 is the first transaction's marker.
    scene.commit(scene.old, 60, 5)
    there, phases = scene.run_with_kills()
    assert (Phase.SWITCHED, 110) == (there.phase, there.records)
    assert [each for each in Phase if each not in (Phase.SWITCHED, Phase.RELEASE, Phase.ABORTED)] == phases
    assert 45 == len(scene.rest(scene.new))
    assert scene.rest(scene.old) == scene.rest(scene.new)
    scene.fill(scene.new, range(100, 120))
    scene.transactions(scene.new)
    with Admin(bootstrap_servers=scene.new) as admin:
        committed = admin.list_consumer_group_offsets([scene.group])[scene.group]
        answer = committed[scene.partition()]
        assert answer is not None
    scene.commit(scene.new, answer.offset + 45, 3)
    back, phases = scene.run_with_kills(there)
    assert Phase.SWITCHED is back.phase
    # Offset 100 of the copy is the marker of the mirror's transaction.
    assert 16 + 17 == len(scene.rest(scene.old))
    assert scene.rest(scene.new) == scene.rest(scene.old)
    with Admin(bootstrap_servers=scene.old) as admin:
        assert {} == admin.describe_client_quotas()
    with Admin(bootstrap_servers=scene.new) as admin:
        assert {EVERYONE: {"producer_byte_rate": 1.0}} == admin.describe_client_quotas()
        admin.alter_client_quotas([QuotaAlteration(EVERYONE, {"producer_byte_rate": None})])


def quotas_of(bootstrap: str) -> dict[QuotaEntity, dict[str, float]]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        return admin.describe_client_quotas()


def test_an_open_transaction_is_named_and_writers_go_on(scene: Scene) -> None:
    scene.create()
    scene.fill(scene.old, range(10))
    with Producer(bootstrap_servers=scene.old, transactional_id=f"{scene.topic}-open") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(scene.topic, b"t", partition=1)
        producer.flush()
        journal = scene.run(is_patient=False)
        assert Phase.ABORTED is journal.phase
        assert f"{scene.topic}-1 from offset 0 by {scene.topic}-open" in journal.reason
        assert {} == quotas_of(scene.old)
        producer.abort_transaction()
    assert Phase.SWITCHED is scene.run().phase
    release(scene.old)


def release(bootstrap: str) -> None:
    """Take the fence of a cut-over that has ended out of a broker that other tests use."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.alter_client_quotas([QuotaAlteration(EVERYONE, {"producer_byte_rate": None})])


def test_a_second_call_carries_what_groups_committed_since(scene: Scene) -> None:
    """Also of a group that is new; one that went on in the target keeps its own offsets."""
    scene.create()
    scene.fill(scene.old, range(10))
    scene.commit(scene.old, 3)
    assert Phase.SWITCHED is scene.run().phase
    scene.commit(scene.old, 7)
    places = scene.run().places
    assert [(7, 7)] == [(each.source, each.target) for each in places]
    assert 3 == len(scene.rest(scene.new))
    scene.commit(scene.new, 9)
    scene.commit(scene.old, 8)
    assert places == scene.run().places
    assert 1 == len(scene.rest(scene.new))
    release(scene.old)


def test_records_that_another_program_wrote_to_a_copy_are_found(scene: Scene) -> None:
    """The cut-over is given up, and writers go on."""
    scene.create()
    scene.fill(scene.old, range(10))
    journal = scene.run(observe=lambda found: scene.fill_at(found, Phase.PLAN_FENCE))
    assert Phase.ABORTED is journal.phase
    assert "has 0 records in the source from offset 10 to 10, and 2 in the target" in journal.reason
    assert {} == quotas_of(scene.old)


def test_what_cannot_be_cut_over_is_refused_before_anything_changes(scene: Scene) -> None:
    scene.create()
    with Admin(bootstrap_servers=scene.new) as admin:
        admin.create_topics([NewTopic(scene.topic, 3)])
        journal = scene.run()
        assert (Phase.ABORTED, True) == (
            journal.phase,
            "has 3 partitions in new and 2 in old" in journal.reason,
        )
        admin.delete_topics([scene.topic])
        admin.create_topics([NewTopic(scene.topic, 2)])
    scene.fill(scene.new, range(3))
    assert "has records that" in scene.run().reason
    with pytest.raises(CutoverError, match="no cut-over under way"):
        scene.abort()
    with pytest.raises(CutoverError, match="IdentityReplicationPolicy"):
        forward(replace(scene.flow, names=replace(scene.flow.names, rule=RenameRule.PREFIX)))
    journal = scene.run()
    with pytest.raises(CutoverError, match="was not cut over"):
        backward(scene.flow, journal)
    with pytest.raises(MirrorError, match="are the same cluster"):
        scene.check(replace(scene.flow, target=scene.flow.source))


def test_giving_up_lets_writers_go_on(scene: Scene) -> None:
    """Also when the process that held them was killed."""
    scene.create()
    scene.fill(scene.old, range(10))

    def kill(journal: Journal) -> None:
        if journal.phase is Phase.GROUPS:
            raise Killed

    with pytest.raises(Killed):
        scene.run(observe=kill)
    assert {EVERYONE: {"producer_byte_rate": 1.0}} == quotas_of(scene.old)
    assert Phase.ABORTED is scene.abort().phase
    assert {} == quotas_of(scene.old)
    assert Phase.SWITCHED is scene.run().phase
    with pytest.raises(CutoverError, match="--back"):
        scene.abort()
    release(scene.old)
