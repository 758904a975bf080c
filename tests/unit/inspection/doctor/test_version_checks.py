"""What `kalda doctor` finds wrong with releases, features, clocks and processes."""

from kalda.clients.admin.clusters import (
    BrokerApiVersions,
    FeatureMetadata,
    FinalizedVersionRange,
    SupportedVersionRange,
)
from kalda.common.api_keys import ApiKey
from kalda.inspection.doctor.findings import Severity
from kalda.inspection.doctor.snapshot import ClockReading, ProcessFacts
from kalda.protocol.schema import VersionRange
from tests.unit.inspection.doctor.snapshots import cluster, found


def versions(fetch: int, supported: int = 1, finalized: int = 1) -> BrokerApiVersions:
    features = FeatureMetadata(
        {"group.version": FinalizedVersionRange(1, finalized)},
        0,
        {"group.version": SupportedVersionRange(0, supported)},
    )
    return BrokerApiVersions({ApiKey.FETCH: VersionRange(0, fetch)}, features)


def process(offset_ms: float = 0, error_ms: float = 5, **more: object) -> ProcessFacts:
    facts: dict[str, object] = {
        "version": "1",
        "is_compiled": True,
        "open_files": 10,
        "open_files_max": 1000,
        **more,
    }
    return ProcessFacts(clock=ClockReading(offset_ms=offset_ms, error_ms=error_ms), **facts)  # type: ignore[arg-type]


def test_brokers_of_different_versions_are_named() -> None:
    findings = found(cluster(brokers=(0, 1), versions={0: versions(17), 1: versions(16)}))

    assert "protocol 3.9 on 0; protocol 3.7 on 1" == findings["versions.differ"].evidence
    assert {} == found(cluster(brokers=(0, 1), versions={0: versions(17), 1: versions(17)}))


def test_features_are_compared_with_what_brokers_support() -> None:
    lacking = found(cluster(versions={0: versions(17, supported=1, finalized=2)}))
    raisable = found(cluster(versions={0: versions(17, supported=2, finalized=1)}))

    assert "group.version=2, broker 0 has 1" == lacking["features.unsupported"].evidence
    assert Severity.ADVICE is raisable["features.not-finalised"].severity


def test_clocks_are_apart_only_beyond_the_error_of_the_measurement() -> None:
    def apart(offset_ms: float, error_ms: float) -> Severity | None:
        processes = {0: process(), 1: process(offset_ms, error_ms)}
        finding = found(cluster(brokers=(0, 1), processes=processes)).get("clocks.skew")
        return None if finding is None else finding.severity

    assert apart(900, 1) is None
    assert apart(1500, 900) is None
    assert Severity.WARNING is apart(1500, 10)
    assert Severity.CRITICAL is apart(-60_000, 10)


def test_processes_with_few_descriptors_or_without_compiled_modules_are_named() -> None:
    processes = {0: process(open_files=900), 1: process(is_compiled=False), 2: process(open_files_max=-1)}
    findings = found(cluster(processes=processes))

    assert "broker 0 has 900 of 1000 open" == findings["brokers.few-descriptors"].evidence
    assert "brokers 1" == findings["brokers.not-compiled"].evidence
