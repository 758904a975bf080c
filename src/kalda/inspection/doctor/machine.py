"""Checks a broker's machine: limits, disks, clock, memory and permissions. Values and pure functions.

`vm.max_map_count` is not among them: a broker of Kalda reads and writes its logs and indexes without mapping
them into memory.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kalda.inspection.cluster_health import is_full
from kalda.inspection.doctor.findings import Finding, Severity, counted, ranked, some

_DESCRIPTORS_LEAST: Final = 1024
_DESCRIPTORS_ENOUGH: Final = 10_000
"""What Kafka's documents call a starting point is 100,000; Kalda keeps at most 4,096 log files open."""

_NEARLY_FULL_PERCENT: Final = 10
_INODES_LEAST_PERCENT: Final = 5

_FSYNC_SLOW_MS: Final = 50.0
_FSYNC_VERY_SLOW_MS: Final = 500.0
"""The coordination server and, with `flush.messages`, the log wait for an fsync: sessions of some seconds
expire when several take this long."""

_VOLATILE: Final = frozenset(("tmpfs", "ramfs"))
_REMOTE: Final = frozenset(("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "afs"))
_SLOW_CLOCKS: Final = frozenset(("hpet", "acpi_pm", "jiffies", "pit"))
_SWAPPINESS_HIGH: Final = 10
_NEVER_OVERCOMMIT: Final = 2

_OTHERS_READ: Final = 0o004
_OTHERS_WRITE: Final = 0o002


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFacts:
    """A log directory and its volume; a fact that the system does not report is None."""

    path: str
    problem: str | None = None
    """Why it could not be looked at; the other fields say nothing then."""
    filesystem: str | None = None
    """The type, such as ``ext4``."""
    mount_options: frozenset[str] = frozenset()
    total_bytes: int | None = None
    usable_bytes: int | None = None
    inodes: int | None = None
    inodes_free: int | None = None
    mode: int = 0o700
    """The permission bits of the directory."""
    fsync_median_ms: float | None = None
    fsync_max_ms: float | None = None
    fsync_count: int = 0
    partitions: int = 0
    """The logs in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """A file with something secret in it."""

    path: str
    what: str
    """What is in it: ``ssl.keystore.location``."""
    mode: int
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """The machine on which the command runs; a fact that the system does not report is None."""

    directories: Sequence[DirectoryFacts] = ()
    secret_files: Sequence[FileFacts] = ()
    descriptors_hard: int | None = None
    """The hard limit of open files, to which a broker raises its own; None for no limit too."""
    connections_max: int | None = None
    """`max.connections` where the file sets it."""
    partitions: int = 0
    """The logs in the directories."""
    is_compiled: bool = True
    clock_source: str | None = None
    is_clock_synchronised: bool | None = None
    clock_error_ms: float | None = None
    """What the kernel takes for the largest error of the wall clock."""
    swap_bytes: int | None = None
    swappiness: int | None = None
    overcommit: int | None = None
    """``vm.overcommit_memory``."""


def check_directories_readable(machine: MachineFacts) -> Iterator[Finding]:
    """Find directories that are not there, or that this user may not use."""
    found = [f"{each.path}: {each.problem}" for each in machine.directories if each.problem is not None]
    if found:
        yield Finding(
            check="machine.directory-unusable",
            severity=Severity.CRITICAL,
            what=f"{counted(found, 'log directory', 'log directories')} cannot be used.",
            evidence=some(found),
            why="A broker takes such a directory offline, and its replicas are gone from the cluster.",
            mend="mend the volume, or run the command as the user of the broker",
        )


def check_room(machine: MachineFacts) -> Iterator[Finding]:
    """Find volumes with little room or few inodes."""
    full, nearly, inodes = [], [], []
    for each in _usable(machine):
        if each.total_bytes and each.usable_bytes is not None:
            text = f"{each.path} ({each.usable_bytes * 100 // each.total_bytes} % free)"
            if is_full(each.usable_bytes, each.total_bytes):
                full.append(text)
            elif each.usable_bytes * 100 < _NEARLY_FULL_PERCENT * each.total_bytes:
                nearly.append(text)
        free = each.inodes_free
        if each.inodes and free is not None and free * 100 < _INODES_LEAST_PERCENT * each.inodes:
            inodes.append(f"{each.path} ({free} of {each.inodes} free)")
    if full or nearly:
        yield Finding(
            check="machine.disk-room",
            severity=Severity.CRITICAL if full else Severity.WARNING,
            what=f"{counted([*full, *nearly], 'volume has', 'volumes have')} little room.",
            evidence=some([*full, *nearly]),
            why="A broker takes a directory offline when it cannot write to it.",
            mend="kalda configs alter --topic TOPIC --add-config retention.ms=…  # or enlarge the volume",
        )
    if inodes:
        yield Finding(
            check="machine.inodes",
            severity=Severity.WARNING,
            what=f"{counted(inodes, 'volume has', 'volumes have')} few inodes left.",
            evidence=some(inodes),
            why="Each segment takes three or four files; without inodes no segment can be created.",
            mend="delete topics or raise segment.bytes, or make the file system with more inodes",
        )


def check_filesystems(machine: MachineFacts) -> Iterator[Finding]:
    """Find directories in memory, on remote volumes, in container layers, or on volumes with atime."""
    volatile = [each for each in _usable(machine) if each.filesystem in _VOLATILE]
    remote = [each for each in _usable(machine) if _is_remote(each.filesystem)]
    layered = [each for each in _usable(machine) if each.filesystem in ("overlay", "aufs")]
    atime = [
        each
        for each in _usable(machine)
        if each.mount_options and not each.mount_options & {"noatime", "relatime"}
    ]
    if volatile:
        yield Finding(
            check="machine.volatile-filesystem",
            severity=Severity.CRITICAL,
            what="Records are kept in memory only.",
            evidence=_places(volatile),
            why="All of them are gone when the machine restarts.",
            mend="set log.dirs to a directory on a disk",
        )
    if remote:
        yield Finding(
            check="machine.remote-filesystem",
            severity=Severity.WARNING,
            what="Records are on a remote file system.",
            evidence=_places(remote),
            why="When the network stalls, all requests stall; renames and locks may not be atomic.",
            mend="set log.dirs to a directory on a local disk or a block device",
        )
    if layered:
        yield Finding(
            check="machine.container-filesystem",
            severity=Severity.WARNING,
            what="Records are in the layer of a container.",
            evidence=_places(layered),
            why="They are gone when the container is replaced.",
            mend="mount a volume at the directory; docs/how-to/deploy.md",
        )
    if atime:
        yield Finding(
            check="machine.atime",
            severity=Severity.ADVICE,
            what="The volume stores the time of each read.",
            evidence=some(f"{each.path} ({','.join(sorted(each.mount_options))})" for each in atime),
            why="Each fetch from disk writes an inode.",
            mend="mount -o remount,noatime MOUNTPOINT",
        )


def check_fsync(machine: MachineFacts) -> Iterator[Finding]:
    """Find directories whose volume takes long to write safely."""
    slow = [
        each
        for each in _usable(machine)
        if each.fsync_median_ms is not None and each.fsync_median_ms > _FSYNC_SLOW_MS
    ]
    if slow:
        is_bad = any((each.fsync_median_ms or 0) > _FSYNC_VERY_SLOW_MS for each in slow)
        yield Finding(
            check="machine.fsync",
            severity=Severity.CRITICAL if is_bad else Severity.WARNING,
            what=f"{counted(slow, 'volume takes', 'volumes take')} long to write safely.",
            evidence=some(
                f"{each.path} (median {each.fsync_median_ms:.1f} ms, longest {each.fsync_max_ms:.1f} ms of "
                f"{each.fsync_count})"
                for each in slow
            ),
            why="Checkpoints, coordination and flushes wait for it; sessions can expire.",
            mend="use a disk of its own with a write cache that is safe; look at the volume with iostat -x 1",
        )


def check_descriptors(machine: MachineFacts) -> Iterator[Finding]:
    """Compare the limit of open files with what a broker needs."""
    hard = machine.descriptors_hard
    if hard is None:
        return
    wanted = machine.connections_max or 0
    is_low = hard < _DESCRIPTORS_ENOUGH
    if is_low or wanted * 3 > hard * 2:
        yield Finding(
            check="machine.descriptors",
            severity=Severity.CRITICAL if hard < _DESCRIPTORS_LEAST else Severity.WARNING,
            what="The limit of open files is low.",
            evidence=f"hard limit {hard} in this shell, {machine.partitions} logs"
            + (f", max.connections={wanted}" if wanted else ""),
            why="Connections and log files share it: clients are refused when two thirds are connections.",
            mend="LimitNOFILE=1048576 in the unit of the broker, or ulimit -Hn in the shell that starts it",
        )


def check_clock(machine: MachineFacts) -> Iterator[Finding]:
    """Find a wall clock that nothing corrects, and a slow source of it."""
    if machine.is_clock_synchronised is False:
        yield Finding(
            check="machine.clock-not-synchronised",
            severity=Severity.WARNING,
            what="Nothing synchronises the clock of this machine.",
            evidence="the kernel says that it is unsynchronised"
            + ("" if machine.clock_error_ms is None else f", error up to {machine.clock_error_ms:.0f} ms"),
            why="It drifts by seconds a day: timestamps, retention and tokens are wrong by that much.",
            mend="systemctl enable --now chrony  # or systemd-timesyncd",
        )
    if machine.clock_source in _SLOW_CLOCKS:
        yield Finding(
            check="machine.clock-source",
            severity=Severity.ADVICE,
            what="Reading the clock is slow.",
            evidence=f"clock source {machine.clock_source}",
            why="A broker reads it several times for each request, at a microsecond or more each.",
            mend="look at dmesg for why the kernel does not use tsc",
        )


def check_memory(machine: MachineFacts) -> Iterator[Finding]:
    """Find settings of memory by which a broker stalls or cannot start its child process."""
    if machine.swap_bytes and machine.swappiness is not None and machine.swappiness > _SWAPPINESS_HIGH:
        yield Finding(
            check="machine.swap",
            severity=Severity.ADVICE,
            what="The machine swaps early.",
            evidence=f"{machine.swap_bytes // 2**20} MiB of swap, vm.swappiness={machine.swappiness}",
            why="The page cache of the logs pushes the broker out of memory; then a request takes seconds.",
            mend="sysctl vm.swappiness=1",
        )
    if machine.overcommit == _NEVER_OVERCOMMIT:
        yield Finding(
            check="machine.overcommit",
            severity=Severity.ADVICE,
            what="The machine never grants more memory than it has.",
            evidence="vm.overcommit_memory=2",
            why="The child process that compacts logs may not start while memory is left.",
            mend="sysctl vm.overcommit_memory=0",
        )


def check_permissions(machine: MachineFacts) -> Iterator[Finding]:
    """Find data and keys that other users of the machine can read or change."""
    written = [f"{each.path} ({each.mode:04o})" for each in _usable(machine) if each.mode & _OTHERS_WRITE]
    read = [
        f"{each.path} ({each.mode:04o})"
        for each in _usable(machine)
        if each.mode & _OTHERS_READ and not each.mode & _OTHERS_WRITE
    ]
    secrets = [
        f"{each.path} ({each.what}, {each.mode:04o})"
        for each in machine.secret_files
        if each.problem is None and each.mode & (_OTHERS_READ | _OTHERS_WRITE)
    ]
    unreadable = [
        f"{each.path} ({each.what}): {each.problem}" for each in machine.secret_files if each.problem
    ]
    if written:
        yield Finding(
            check="machine.data-writable",
            severity=Severity.CRITICAL,
            what="Every user of this machine can change records.",
            evidence=some(written),
            why="Whatever runs on the machine can destroy the data of the broker.",
            mend="chmod 700 DIRECTORY",
        )
    if secrets:
        yield Finding(
            check="machine.secrets-readable",
            severity=Severity.CRITICAL,
            what="Every user of this machine can read keys or passwords.",
            evidence=some(secrets),
            why="With them one can pass for a broker, or log in as its users.",
            mend="chmod 600 FILE  # and replace the key if others may have read it",
        )
    if unreadable:
        yield Finding(
            check="machine.secrets-unreadable",
            severity=Severity.WARNING,
            what="This user cannot read files that the broker needs.",
            evidence=some(unreadable),
            why="If the broker runs as this user, it does not start.",
            mend="chown USER FILE",
        )
    if read:
        yield Finding(
            check="machine.data-readable",
            severity=Severity.ADVICE,
            what="Every user of this machine can read records.",
            evidence=some(read),
            why="ACLs of the cluster do not hold for files.",
            mend="chmod 700 DIRECTORY",
        )


def check_compiled(machine: MachineFacts) -> Iterator[Finding]:
    """Find an installation without the compiled modules."""
    if not machine.is_compiled:
        yield Finding(
            check="machine.not-compiled",
            severity=Severity.WARNING,
            what="The installed Kalda lacks its compiled modules.",
            evidence="kalda version says pure Python",
            why="Requests and records of old formats take several times as long.",
            mend="pip install --force-reinstall kalda  # a wheel for this Python and platform has them",
        )


MACHINE_CHECKS: Final[Sequence[Callable[[MachineFacts], Iterator[Finding]]]] = (
    check_directories_readable,
    check_room,
    check_filesystems,
    check_permissions,
    check_descriptors,
    check_fsync,
    check_clock,
    check_compiled,
    check_memory,
)
"""In the order in which findings of one severity are shown."""


def examine_machine(machine: MachineFacts) -> list[Finding]:
    """Return the problems of a machine, the worst first."""
    return ranked(each for check in MACHINE_CHECKS for each in check(machine))


def _usable(machine: MachineFacts) -> Iterator[DirectoryFacts]:
    return (each for each in machine.directories if each.problem is None)


def _is_remote(filesystem: str | None) -> bool:
    return filesystem is not None and (filesystem in _REMOTE or filesystem.startswith("fuse."))


def _places(directories: Sequence[DirectoryFacts]) -> str:
    return some(f"{each.path} ({each.filesystem})" for each in directories)
