"""What `kalda doctor` finds wrong with brokers and their log directories."""

from kalda.clients.admin.log_dirs import LogDirDescription
from kalda.clients.errors import error_for
from kalda.common.errors import ErrorCode
from tests.unit.inspection.doctor.snapshots import cluster, found, topic

GIB = 2**30


def test_a_broker_with_replicas_that_does_not_respond_is_named() -> None:
    findings = found(cluster(topic("t", (0, (0, 7), (0, 7)))))

    assert {"brokers.absent"} == findings.keys()
    assert "Broker 7 does not respond." == findings["brokers.absent"].what
    assert "replicas of 1 partition is there" == findings["brokers.absent"].evidence


def test_a_cluster_without_a_controller_is_named() -> None:
    assert {"brokers.no-controller"} == found(cluster(controller_id=None)).keys()


def test_log_directories_are_judged_by_their_room() -> None:
    error = error_for(ErrorCode.KAFKA_STORAGE_ERROR, "disk")
    dirs = {
        "/offline": LogDirDescription({}, error),
        "/full": LogDirDescription({}, None, 100 * GIB, GIB // 2),
        "/nearly": LogDirDescription({}, None, 100 * GIB, 5 * GIB),
        "/roomy": LogDirDescription({}, None, 100 * GIB, 50 * GIB),
        "/silent": LogDirDescription({}),
    }
    findings = found(cluster(log_dirs={0: dirs}))

    assert ["log-dirs.offline", "log-dirs.full", "log-dirs.nearly-full"] == list(findings)
    assert findings["log-dirs.offline"].evidence.startswith("/offline of broker 0 (")
    assert "/full of broker 0 (0.5 of 100.0 GiB free)" == findings["log-dirs.full"].evidence
    assert "/nearly of broker 0 (5.0 of 100.0 GiB free)" == findings["log-dirs.nearly-full"].evidence
