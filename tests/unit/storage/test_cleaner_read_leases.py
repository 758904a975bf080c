"""The log cleaner leaves segments in place that clients read under a lease."""

from kalda.common.types import TopicPartition
from tests.unit.storage.cleaning_fixtures import CompactedBroker, records_of


class FakeLeases:
    """A lease of all offsets from `leased_from` on; None for no lease."""

    def __init__(self) -> None:
        self.leased_from: int | None = 0
        self.rewrites: list[str] = []

    def removable_below(self, topic_partition: TopicPartition, offset: int) -> int:
        return offset if self.leased_from is None else min(offset, self.leased_from)

    def begin_rewrite(self, topic_partition: TopicPartition, offset: int) -> bool:
        self.rewrites.append("begin")
        return self.removable_below(topic_partition, offset) == offset

    def end_rewrite(self, topic_partition: TopicPartition) -> None:
        self.rewrites.append("end")

    def on_truncation(self, topic_partition: TopicPartition, offset: int) -> None:
        pass

    def on_removal(self, topic_partition: TopicPartition) -> None:
        pass


def test_a_leased_log_is_cleaned_after_the_lease() -> None:
    broker = CompactedBroker()
    leases = FakeLeases()
    broker.manager.resources.read_leases = leases
    for number in range(30):
        broker.put((b"key", b"%d" % number))
    broker.roll()
    before = broker.log.segments

    assert not broker.clean()
    assert before == broker.log.segments
    assert [] == leases.rewrites

    leases.leased_from = None
    assert broker.clean()
    assert [b"29"] == [record.value for record in records_of(broker.log)]
    assert ["begin", "end"] == leases.rewrites
