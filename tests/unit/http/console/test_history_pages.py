"""Which changes the page of a topic's history shows, and in which words."""

from kalda.cluster.history.author import Author
from kalda.cluster.history.changes import Change, Origin
from kalda.cluster.history.subjects import JsonValue
from kalda.cluster.history.timeline import HistoryEntry, Timeline
from kalda.http.console.history_pages import history_rows

AUTHOR = Author(7)


def entries(*changes: tuple[str, JsonValue]) -> list[HistoryEntry]:
    timeline = Timeline()
    for number, (path, value) in enumerate(changes, 1):
        timeline.add(Change(path, value, number * 1_000, Origin.WRITTEN, AUTHOR, is_deleted=value is None))
    return timeline.entries


HISTORY = entries(
    ("/brokers/topics/orders/partitions/0/state", {"leader": 1, "isr": [1, 2]}),
    ("/brokers/topics/orders/partitions/1/state", {"leader": 2}),
    ("/brokers/topics/others/partitions/1/state", {"leader": 3}),
    ("/config/topics/orders", {"config": {"retention.ms": "1"}}),
    ("/config/topics/orders", {"config": {"retention.ms": "2"}}),
    ("/brokers/topics/orders/partitions/0/state", {"leader": 1, "isr": [1]}),
    ("/config/topics/orders", None),
)


def shown(partition: str = "", *, is_cut: bool = False) -> list[tuple[str, str]]:
    rows = history_rows("orders", partition, HISTORY, is_cut=is_cut)
    return [(row.cells[1].text, row.cells[2].text) for row in rows]


def test_the_changes_of_a_topic_come_with_the_newest_first() -> None:
    assert [
        ("topic-config orders", "deleted"),
        ("partition orders-0", "changed: isr=[1,2] → [1]"),
        ("topic-config orders", "changed: retention.ms=1 → 2"),
        ("topic-config orders", "created: retention.ms=1"),
        ("partition orders-1", "created: leader=2"),
        ("partition orders-0", "created: isr=[1,2], leader=1"),
    ] == shown()


def test_a_partition_has_a_history_of_its_own() -> None:
    assert ["changed: isr=[1,2] → [1]", "created: isr=[1,2], leader=1"] == [text for _, text in shown("0")]
    (row,) = history_rows("orders", "1", HISTORY, is_cut=False)
    assert "/topics/orders/history?partition=1" == row.cells[1].link
    assert ("broker 7", "written") == (row.cells[3].text, row.cells[3].note)


def test_what_was_before_is_not_claimed_where_the_beginning_was_not_read() -> None:
    assert ("partition orders-1", "set: leader=2") in shown(is_cut=True)
