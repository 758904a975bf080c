"""A cut-over between two brokers and back, with the process ended at each step."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import confluent_kafka
import pytest

from kalda import Admin, NewTopic, Producer
from kalda.clients.admin.quotas import QuotaAlteration, QuotaEntity, quota_entity
from kalda.common.types import TopicPartition
from kalda.pipelines.cutover.cutover import Cutover, CutoverError, CutoverOptions, backward, forward
from kalda.pipelines.cutover.journal import Journal, JournalFile, Phase
from kalda.pipelines.mirror.cluster_settings import ClusterSettings
from kalda.pipelines.mirror.mirror import MirrorOptions
from kalda.pipelines.mirror.policy import MirrorError, MirrorNames, NameFilter, RenameRule
from kalda.testing import KaldaProcess

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


class Killed(BaseException):
    """Stands for the end of the process."""


class Scene:
    """One topic that is cut over, and what happens to it."""

    def __init__(self, old: str, new: str, topic: str, directory: Path) -> None:
        self.old, self.new, self.topic = old, new, topic
        self.group = f"{topic}-readers"
        self.there = JournalFile(directory / "journal")
        self.back = JournalFile(directory / "journal.back")
        self.said: list[str] = []
        self.flow = MirrorOptions(
            name=f"{topic}-old->new",
            source=ClusterSettings({"bootstrap.servers": old}),
            target=ClusterSettings({"bootstrap.servers": new}),
            names=MirrorNames("old", "new", NameFilter(re.compile(re.escape(topic)))),
            groups=NameFilter(re.compile(re.escape(self.group))),
        )

    def partition(self, number: int = 0) -> TopicPartition:
        return TopicPartition(self.topic, number)

    def create(self) -> None:
        with Admin(bootstrap_servers=self.old) as admin:
            admin.create_topics([NewTopic(self.topic, 2)])

    def fill(self, bootstrap: str, texts: range, *, partition: int = 0) -> None:
        with Producer(bootstrap_servers=bootstrap) as producer:
            for number in texts:
                producer.send(self.topic, b"%d" % number, key=b"k", partition=partition)

    def transactions(self, bootstrap: str) -> None:
        """Records of two transactions that committed, and between them one that did not."""
        with Producer(bootstrap_servers=bootstrap, transactional_id=self.topic) as producer:
            producer.init_transactions()
            for is_committed in (True, False, True):
                producer.begin_transaction()
                for number in range(5):
                    producer.send(self.topic, b"t%d" % number, partition=1)
                producer.flush()
                if is_committed:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()

    def commit(self, bootstrap: str, *offsets: int) -> None:
        with Admin(bootstrap_servers=bootstrap) as admin:
            placed = {self.partition(number): offset for number, offset in enumerate(offsets)}
            admin.alter_consumer_group_offsets({self.group: placed})

    def rest(self, bootstrap: str) -> list[bytes | None]:
        """What the group would read."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": self.group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        found: list[tuple[int, bytes | None]] = []
        consumer.assign([confluent_kafka.TopicPartition(self.topic, each) for each in range(2)])
        at_end = 0
        while at_end < 2:
            message = consumer.poll(30)
            assert message is not None
            if message.error():
                at_end += 1
            else:
                found.append((message.partition() or 0, message.value()))
        consumer.close()
        return [value for _, value in sorted(found, key=lambda each: each[0])]

    def run(
        self,
        *,
        former: Journal | None = None,
        pause_max_s: float = 60.0,
        observe: Callable[[Journal], None] = lambda _: None,
    ) -> Journal:
        flow = forward(self.flow) if former is None else backward(self.flow, former)
        options = CutoverOptions(mirror=flow, still_s=0.1, pause_max_s=pause_max_s, former=former)
        file = self.there if former is None else self.back
        with Cutover(options, file, self.said.append, observe=observe) as cutover:
            return cutover.run()

    def abort(self) -> Journal:
        options = CutoverOptions(mirror=forward(self.flow))
        with Cutover(options, self.there, self.said.append) as cutover:
            return cutover.abort()

    def check(self, flow: MirrorOptions) -> None:
        with Cutover(CutoverOptions(mirror=forward(flow)), self.there, self.said.append) as cutover:
            cutover.check()

    def fill_at(self, journal: Journal, phase: Phase) -> None:
        """Write to the copy when a phase is reached."""
        if journal.phase is phase:
            with Admin(bootstrap_servers=self.new) as admin:
                assert self.topic in admin.list_topics()
            self.fill(self.new, range(2))

    def run_with_kills(self, former: Journal | None = None) -> tuple[Journal, list[Phase]]:
        """End the process each time when a phase is written for the first time."""
        seen: list[Phase] = []

        def kill(journal: Journal) -> None:
            if journal.phase not in seen and journal.phase is not Phase.SWITCHED:
                seen.append(journal.phase)
                raise Killed

        while True:
            try:
                return self.run(former=former, observe=kill), seen
            except Killed:
                continue


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
        journal = scene.run(pause_max_s=1.0)
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
