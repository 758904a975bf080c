"""A cut-over between two brokers and back, with the process ended at each step."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kalda import Admin, Consumer, NewTopic, Producer
from kalda.clients.admin.quotas import QuotaAlteration, QuotaEntity, quota_entity
from kalda.pipelines.cutover.journal import Journal, Phase
from kalda.pipelines.cutover.options import CutoverError, backward, forward
from kalda.pipelines.mirror.policy import MirrorError, RenameRule
from kalda.testing import KaldaProcess
from tests import forked_commands
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


def test_a_group_with_members_is_named_and_carried_when_it_has_none(scene: Scene) -> None:
    """What it commits behind the cut is not lost."""
    scene.create()
    scene.fill(scene.old, range(100))
    with Consumer(
        scene.topic,
        bootstrap_servers=scene.old,
        group_id=scene.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=10,
    ) as consumer:
        read = len(consumer.poll(60.0))
        consumer.commit()
        journal = scene.run()
        assert Phase.SWITCHED is journal.phase
        (named,) = [each for each in journal.not_carried if each.name == scene.group]
        assert "has members in the source" in named.reason
        assert 100 - read == len(scene.rest(scene.new))
        read += len(consumer.poll(60.0))
        consumer.commit()
    journal = scene.run()
    assert scene.group not in [each.name for each in journal.not_carried]
    assert 100 - read == len(scene.rest(scene.new))
    release(scene.old)


def kalda(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kalda", "mirror", *map(str, arguments)]
    done = forked_commands.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert code == done.returncode, done.stdout + done.stderr
    return done


def test_quotas_are_carried_when_all_is_copied(scene: Scene) -> None:
    """Those of the source would hold the mirror, too."""
    scene.create()
    scene.fill(scene.old, range(10))
    someone = quota_entity({"user": scene.topic})
    before: list[bool] = []
    with Admin(bootstrap_servers=scene.old) as admin:
        admin.alter_client_quotas([QuotaAlteration(someone, {"producer_byte_rate": 5.0})])
        journal = scene.run(
            observe=lambda found: (
                before.append(someone in quotas_of(scene.new)) if found.phase is not Phase.SWITCHED else None
            )
        )
        assert {False} == set(before)
        assert {"producer_byte_rate": 5.0} == quotas_of(scene.new)[someone]
        # The fence had lowered it.
        held = {each.entity: each.before for each in journal.fence.quotas}
        assert {EVERYONE: None, someone: 5.0} == held
        admin.alter_client_quotas([QuotaAlteration(someone, {"producer_byte_rate": None})])
    release(scene.old)


@pytest.mark.timeout(900)
def test_the_command_says_what_it_did_and_where_clients_go(scene: Scene, tmp_path: Path) -> None:
    scene.create()
    scene.fill(scene.old, range(20))
    scene.commit(scene.old, 5)
    file = tmp_path / "mirror.properties"
    lines = [
        "clusters = a, b",
        f"a.bootstrap.servers = {scene.old}",
        f"b.bootstrap.servers = {scene.new}",
        "a->b.enabled = true",
        f"topics = {scene.topic}",
        f"groups = {scene.group}",
        "replication.factor = 1",
        "offset-syncs.topic.replication.factor = 1",
    ]
    file.write_text("\n".join(lines))
    assert "IdentityReplicationPolicy" in kalda("--cutover", file, code=1).stderr
    lines.append("replication.policy.class = IdentityReplicationPolicy")
    file.write_text("\n".join(lines))
    assert "there is no way back" in kalda("cutover", file, "--back", code=2).stderr
    assert "no cut-over under way" in kalda("cutover", file, "--abort", code=1).stderr
    assert "a->b: checked; it can be cut over" in kalda("cutover", file, "--dry-run").stdout
    assert [] == [each for each in tmp_path.iterdir() if each.suffix == ".cutover"]
    out = kalda("cutover", file).stdout
    assert "a->b: cut over" in out
    assert "20 records compared" in out
    assert "offsets of groups: 1, 1 of them at the very next record" in out
    assert f"clients switch to bootstrap.servers={scene.new}" in out
    report = json.loads(kalda("cutover", file, "--back", "--json").stdout)
    assert ("b->a", "switched", scene.old) == (report["flow"], report["phase"], report["bootstrap"])
    assert 15 == len(scene.rest(scene.old))
    release(scene.new)
