"""Compaction as a reader sees it, over a file system in memory."""

from tests.unit.storage.cleaning_fixtures import CompactedBroker, contents, records_of


def test_the_last_record_of_each_key_survives() -> None:
    """The reason for it all; offsets stay what they were."""
    broker = CompactedBroker()
    for number in range(60):
        broker.put((b"k%d" % (number % 7), b"v%d" % number))
    before = contents(records_of(broker.log))
    assert len(broker.log.segments) > 3
    clean_below = broker.log.segments[-1].base_offset

    assert broker.clean()

    expected = [
        each
        for each in before
        if each[0] >= clean_below
        or all(later[1] != each[1] for later in before if each[0] < later[0] < clean_below)
    ]
    assert expected == contents(records_of(broker.log))
    assert clean_below == broker.cleaner.clean_offset(broker.log.topic_partition)
    assert not [name for name in broker.file_names() if name.endswith((".cleaned", ".swap"))]
    assert not broker.clean()
    again = broker.restarted()
    assert expected == contents(records_of(again.log))
    assert clean_below == again.cleaner.clean_offset(broker.log.topic_partition)
