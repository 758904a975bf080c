"""The cleaner in a broker: what its settings become, and what is published of it."""

from kalda.broker.logs.log_cleaning import cleaner_config, register_cleaner_metrics
from kalda.common.metrics import Metrics
from kalda.settings import BrokerConfig
from kalda.storage.cleaner.cleaner_config import CleanerConfig
from tests.unit.storage.cleaning_fixtures import CompactedBroker


def test_settings_are_those_in_force() -> None:
    """Kafka's defaults, and what is changed while the broker runs; its unlimited rate is none."""
    config = BrokerConfig.from_properties({})
    assert CleanerConfig() == cleaner_config(config)
    changes = {
        "log.cleaner.threads": "2",
        "log.cleaner.dedupe.buffer.size": "1000000",
        "log.cleaner.io.buffer.load.factor": "0.5",
        "log.cleaner.io.buffer.size": "100000",
        "log.cleaner.io.max.bytes.per.second": "1000.5",
        "log.cleaner.backoff.ms": "7",
    }
    config.apply_dynamic(changes, {})
    assert CleanerConfig(2, 1_000_000, 0.5, 100_000, 1000.5, 7) == cleaner_config(config)


def test_metrics_have_kafkas_names() -> None:
    """Read when they are collected; what belongs to a directory says which."""
    broker = CompactedBroker()
    metrics = Metrics()
    register_cleaner_metrics(metrics, broker.cleaner, broker.manager, broker.clock)
    for number in range(20):
        broker.put((b"k", b"%d" % number))
    broker.roll()
    broker.clean()
    broker.clean()
    broker.clock.advance(3)
    broker.cleaner.uncleanable[broker.log.topic_partition] = "for the test"
    found: dict[str, float] = {}
    for family in metrics.families():
        for read in family.samples.values():
            assert callable(read)
            found[family.name] = read()
    for table in metrics.tables():
        for labels, values in filter(None, table.rows()):
            for column, value in zip(table.columns, values, strict=True):
                assert value is not None
                found[f"{column.name} {dict(labels)['logdirectory']}"] = value
    manager, cleaner = "kafka_log_logcleanermanager", "kafka_log_logcleaner"
    recopied = found.pop(f"{cleaner}_cleaner_recopy_percent")
    assert 0 < recopied < 50
    assert {
        f"{manager}_max_dirty_percent": 0,
        f"{manager}_time_since_last_run_ms": 3000,
        f"{cleaner}_max_buffer_utilization_percent": 0,
        f"{cleaner}_max_clean_time_secs": 0,
        f"{cleaner}_max_compaction_delay_secs": 0,
        f"{cleaner}_deadthreadcount": 0,
        f"{manager}_uncleanable_partitions_count /data": 1,
        f"{manager}_uncleanable_bytes /data": 0,
    } == found
