"""What `kalda doctor` finds wrong with the machine of a broker."""

from typing import Any

import pytest

from kalda.inspection.doctor.findings import Finding, Severity
from kalda.inspection.doctor.machine import DirectoryFacts, FileFacts, MachineFacts, examine_machine

SOUND = DirectoryFacts(
    path="/data",
    filesystem="ext4",
    mount_options=frozenset({"rw", "noatime"}),
    total_bytes=1000,
    usable_bytes=500,
    inodes=1000,
    inodes_free=500,
    fsync_median_ms=2.0,
    fsync_max_ms=9.0,
    fsync_count=30,
)


def directory(**changes: Any) -> DirectoryFacts:
    facts = {name: getattr(SOUND, name) for name in SOUND.__slots__}
    return DirectoryFacts(**{**facts, **changes})


def found(*directories: DirectoryFacts, **facts: Any) -> dict[str, Finding]:
    findings = examine_machine(MachineFacts(directories=directories, **facts))
    return {each.check: each for each in findings}


def test_nothing_is_found_on_a_sound_machine() -> None:
    assert {} == found(
        SOUND,
        descriptors_hard=1_048_576,
        clock_source="tsc",
        is_clock_synchronised=True,
        swap_bytes=2**30,
        swappiness=1,
        overcommit=0,
        secret_files=[FileFacts(path="/k.pem", what="ssl.keystore.location", mode=0o600)],
    )


@pytest.mark.parametrize(
    ("check", "severity", "changes"),
    [
        ("machine.directory-unusable", Severity.CRITICAL, {"problem": "no answer within 5 seconds"}),
        ("machine.disk-room", Severity.CRITICAL, {"usable_bytes": 5}),
        ("machine.disk-room", Severity.WARNING, {"usable_bytes": 50}),
        ("machine.inodes", Severity.WARNING, {"inodes_free": 20}),
        ("machine.volatile-filesystem", Severity.CRITICAL, {"filesystem": "tmpfs"}),
        ("machine.remote-filesystem", Severity.WARNING, {"filesystem": "nfs4"}),
        ("machine.remote-filesystem", Severity.WARNING, {"filesystem": "fuse.sshfs"}),
        ("machine.container-filesystem", Severity.WARNING, {"filesystem": "overlay"}),
        ("machine.atime", Severity.ADVICE, {"mount_options": frozenset({"rw", "strictatime"})}),
        ("machine.fsync", Severity.WARNING, {"fsync_median_ms": 80.0}),
        ("machine.fsync", Severity.CRITICAL, {"fsync_median_ms": 800.0}),
        ("machine.data-writable", Severity.CRITICAL, {"mode": 0o777}),
        ("machine.data-readable", Severity.ADVICE, {"mode": 0o755}),
    ],
)
def test_a_directory_is_judged(check: str, severity: Severity, changes: dict[str, Any]) -> None:
    findings = found(directory(**changes))

    assert {check: severity} == {name: each.severity for name, each in findings.items()}
    assert "/data" in findings[check].evidence


@pytest.mark.parametrize(
    ("check", "severity", "facts"),
    [
        ("machine.descriptors", Severity.CRITICAL, {"descriptors_hard": 512}),
        ("machine.descriptors", Severity.WARNING, {"descriptors_hard": 4096}),
        ("machine.descriptors", Severity.WARNING, {"descriptors_hard": 20_000, "connections_max": 19_000}),
        ("machine.clock-not-synchronised", Severity.WARNING, {"is_clock_synchronised": False}),
        ("machine.clock-source", Severity.ADVICE, {"clock_source": "hpet"}),
        ("machine.swap", Severity.ADVICE, {"swap_bytes": 2**30, "swappiness": 60}),
        ("machine.overcommit", Severity.ADVICE, {"overcommit": 2}),
        ("machine.not-compiled", Severity.WARNING, {"is_compiled": False}),
        (
            "machine.secrets-readable",
            Severity.CRITICAL,
            {"secret_files": [FileFacts(path="/k", what="ssl.keystore.location", mode=0o644)]},
        ),
        (
            "machine.secrets-unreadable",
            Severity.WARNING,
            {"secret_files": [FileFacts(path="/k", what="x", mode=0, problem="permission denied")]},
        ),
    ],
)
def test_the_machine_is_judged(check: str, severity: Severity, facts: dict[str, Any]) -> None:
    assert {check: severity} == {name: each.severity for name, each in found(SOUND, **facts).items()}
