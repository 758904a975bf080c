"""`kalda migrate check` names every obstacle of a cluster, and no other."""

from pathlib import Path

import pytest

from kalda.tools.migrate.checks import check_described_settings, check_file
from kalda.tools.migrate.cluster_checks import check_cluster, check_zookeeper
from kalda.tools.migrate.settings_checks import check_settings
from kalda.tools.migrate.verdicts import Level, Verdict, merged, worst
from tests.unit.tools.migrate.prepared_clusters import CLUSTERS, Obstacles, Plant, Prepared


@pytest.mark.parametrize(
    ("plant", "expected"), [case[1:] for case in CLUSTERS], ids=[case[0] for case in CLUSTERS]
)
def test_the_check_names_what_was_planted_and_nothing_else(
    plant: Plant, expected: Obstacles, tmp_path: Path
) -> None:
    cluster = Prepared(tmp_path)
    plant(cluster)
    found = [
        *check_cluster(cluster.cluster),
        *check_zookeeper(cluster.zookeeper),
        *check_file(
            cluster.write(),
            cluster_id=cluster.cluster.cluster_id,
            has_kerberos=False,
            reads_directories=True,
        ),
    ]
    obstacles = [(each.level, each.subject) for each in found if each.level is not Level.FITS]
    assert sorted(expected) == sorted(set(obstacles)), [each.text for each in found]


def test_a_broker_that_describes_its_settings_hides_login_modules_which_are_not_missed() -> None:
    settings = {
        "listeners": "SASL_PLAINTEXT://:9092",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "zookeeper.connect": "zk:2181",
        "log.dirs": "/data",
    }
    assert Level.STOPS is worst(check_settings("broker 1", settings, has_kerberos=False))
    assert Level.FITS is worst(check_described_settings("broker 1", settings, has_kerberos=False))


def test_every_setting_is_counted_once() -> None:
    settings = {
        "listeners": "PLAINTEXT://:9092",
        "zookeeper.connect": "zk:2181",
        "log.dirs": "/data",
        "num.io.threads": "8",
        "metric.reporters": "com.example.Reporter",
    }
    texts = [each.text for each in check_settings("f", settings, has_kerberos=False)]
    assert "3 other settings mean the same in Kalda" in texts
    assert "accepted without effect: num.io.threads" in texts


def test_equal_verdicts_of_several_brokers_are_one_line_and_the_worst_come_first() -> None:
    verdicts = [
        Verdict(Level.FITS, "release", "broker 1", "Kafka 3.9"),
        Verdict(Level.FITS, "release", "broker 2", "Kafka 3.9"),
        Verdict(Level.STOPS, "brokers", "cluster", "broker 3 does not run"),
    ]
    assert [
        Verdict(Level.STOPS, "brokers", "cluster", "broker 3 does not run"),
        Verdict(Level.FITS, "release", "broker 1, broker 2", "Kafka 3.9"),
    ] == merged(verdicts)
