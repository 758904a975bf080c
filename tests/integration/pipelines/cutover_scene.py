"""One topic that is cut over between two clusters, for tests of what happens meanwhile."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import confluent_kafka

from kalda import Admin, NewTopic, Producer
from kalda.common.types import TopicPartition
from kalda.pipelines.cutover.cutover import Cutover
from kalda.pipelines.cutover.journal import Journal, JournalFile, Phase
from kalda.pipelines.cutover.options import CutoverOptions, backward, forward
from kalda.pipelines.mirror.cluster_settings import ClusterSettings
from kalda.pipelines.mirror.mirror import MirrorOptions
from kalda.pipelines.mirror.policy import MirrorNames, NameFilter


class Killed(BaseException):
    """Stands for the end of the process."""


def settings_of(bootstrap: str, settings: Mapping[str, str]) -> ClusterSettings:
    return ClusterSettings({"bootstrap.servers": bootstrap, **settings})


class Scene:
    """One topic that is cut over, and what happens to it."""

    def __init__(
        self, old: str, new: str, topic: str, directory: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        self.old, self.new, self.topic = old, new, topic
        self.group = f"{topic}-readers"
        self.there = JournalFile(directory / "journal")
        self.back = JournalFile(directory / "journal.back")
        self.said: list[str] = []
        self._now_s = 0.0
        self.flow = MirrorOptions(
            name=f"{topic}-old->new",
            source=settings_of(old, settings or {}),
            target=settings_of(new, settings or {}),
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
        is_patient: bool = True,
        observe: Callable[[Journal], None] = lambda _: None,
    ) -> Journal:
        flow = forward(self.flow) if former is None else backward(self.flow, former)
        options = CutoverOptions(mirror=flow, step_s=0.0, still_s=0.0, former=former)
        file = self.there if former is None else self.back
        with Cutover(
            options,
            file,
            self.said.append if is_patient else self._lose_patience,
            observe=observe,
            monotonic=lambda: self._now_s,
        ) as cutover:
            return cutover.run()

    def _lose_patience(self, line: str) -> None:
        """Let the time for everything be over when there is something to wait for."""
        self.said.append(line)
        if "waiting for" in line or "trying again" in line:
            self._now_s += 1_000

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
