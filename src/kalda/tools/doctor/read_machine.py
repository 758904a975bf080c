"""Gathers what the checks of a machine look at. It writes one small file in each directory and deletes it."""

import contextlib
import ctypes
import os
import queue
import secrets
import statistics
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from kalda.inspection.doctor.machine import DirectoryFacts, FileFacts, MachineFacts
from kalda.storage.file_names import parse_partition_directory_name

_SECONDS: Final = 5.0
"""How long looking at one directory or file may take: a dead NFS server must not hang the command."""

T = TypeVar("T")

_FSYNC_SECONDS: Final = 1.0
_FSYNC_COUNT: Final = 30
_FSYNC_BYTES: Final = 4096
"""A decoy of this size is written and forced up to 30 times, for at most a second."""

_UNSYNCHRONISED: Final = 5
"""TIME_ERROR, as adjtimex(2) returns it."""

_TIMEX_BYTES: Final = 512
_TIMEX_MAX_ERROR_AT: Final = 24
"""Of ``struct timex`` on 64-bit Linux, which has 208 bytes."""

_SECRET_FILES: Final = ("ssl.keystore.location", "java.security.auth.login.config")


def read_machine(
    directories: Sequence[Path], config: Path | None, properties: Mapping[str, str]
) -> MachineFacts:
    """Look at this machine, as a broker with these directories and settings would find it.

    Args:
        directories: the log directories.
        config: the ``server.properties``, whose own permissions matter if it has passwords.
        properties: its settings.
    """
    is_synchronised, error_ms = _kernel_clock()
    looked_at = [_looked_at(each) for each in directories]
    return MachineFacts(
        directories=looked_at,
        secret_files=_secret_files(config, properties),
        descriptors_hard=_descriptors_hard(),
        connections_max=_number(properties.get("max.connections")),
        partitions=sum(each.partitions for each in looked_at),
        is_compiled=_is_compiled(),
        clock_source=_text(Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        is_clock_synchronised=is_synchronised,
        clock_error_ms=error_ms,
        swap_bytes=_swap_bytes(),
        swappiness=_number(_text(Path("/proc/sys/vm/swappiness"))),
        overcommit=_number(_text(Path("/proc/sys/vm/overcommit_memory"))),
    )


def _within_time(path: object, look: Callable[[], T], failed: Callable[[str], T]) -> T:
    """Look at something in a thread of its own, which is left behind if the volume hangs."""
    answers: queue.SimpleQueue[T] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put(look())
        except OSError as error:
            answers.put(failed(error.strerror or str(error)))
        except ValueError as error:  # the name has a null byte
            answers.put(failed(str(error)))

    threading.Thread(target=run, name=f"look at {path}", daemon=True).start()
    try:
        return answers.get(timeout=_SECONDS)
    except queue.Empty:
        return failed(f"no answer within {_SECONDS:.0f} seconds")


def _looked_at(path: Path) -> DirectoryFacts:
    return _within_time(
        path, lambda: _directory(path), lambda problem: DirectoryFacts(path=str(path), problem=problem)
    )


def _directory(path: Path) -> DirectoryFacts:
    mode = path.stat().st_mode & 0o777
    volume = os.statvfs(path)
    filesystem, options = _mount(path, _text(Path("/proc/self/mountinfo")) or "")
    times = _fsync_ms(path)
    return DirectoryFacts(
        path=str(path),
        filesystem=filesystem,
        mount_options=options,
        total_bytes=volume.f_blocks * volume.f_frsize,
        usable_bytes=volume.f_bavail * volume.f_frsize,
        inodes=volume.f_files or None,
        inodes_free=volume.f_favail if volume.f_files else None,
        mode=mode,
        fsync_median_ms=statistics.median(times),
        fsync_max_ms=max(times),
        fsync_count=len(times),
        partitions=_partitions(path),
    )


def _fsync_ms(directory: Path) -> list[float]:
    """Write and force a decoy some times; return how long each took. At least one."""
    path = directory / f".kalda-doctor-{secrets.token_hex(8)}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    times: list[float] = []
    try:
        deadline = time.monotonic() + _FSYNC_SECONDS
        while not times or (len(times) < _FSYNC_COUNT and time.monotonic() < deadline):
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, b"k" * _FSYNC_BYTES)
            started = time.perf_counter()
            os.fsync(descriptor)
            times.append((time.perf_counter() - started) * 1000)
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)
    return times


def _mount(path: Path, mountinfo: str) -> tuple[str | None, frozenset[str]]:
    """Return type and options of the mount that a path is on, by the text of ``/proc/self/mountinfo``.

    >>> text = "22 1 8:1 / / rw,noatime shared:1 - ext4 /dev/sda1 rw"
    >>> _mount(Path("/x"), text) == ("ext4", frozenset({"rw", "noatime"}))
    True
    """
    resolved = os.path.realpath(path)
    best: tuple[str, str, frozenset[str]] | None = None
    for line in mountinfo.splitlines():
        left, separator, right = line.partition(" - ")
        fields, rest = left.split(), right.split()
        if not separator or len(fields) < 6 or not rest:
            continue
        point = fields[4].replace("\\040", " ")
        is_above = resolved == point or resolved.startswith(point.rstrip("/") + "/")
        # Of two mounts at one point the later one is in force.
        if is_above and (best is None or len(point) >= len(best[0])):
            best = (point, rest[0], frozenset(fields[5].split(",")))
    return (None, frozenset()) if best is None else (best[1], best[2])


def _partitions(directory: Path) -> int:
    try:
        return sum(parse_partition_directory_name(each) is not None for each in os.listdir(directory))
    except OSError:
        return 0


def _secret_files(config: Path | None, properties: Mapping[str, str]) -> list[FileFacts]:
    named = {
        value.strip(): name for name, value in sorted(properties.items()) if name.endswith(_SECRET_FILES)
    }
    if config is not None and any("password" in name or "jaas" in name for name in properties):
        named[str(config)] = "passwords"
    return [_file(path, what) for path, what in named.items()]


def _file(path: str, what: str) -> FileFacts:
    def look() -> FileFacts:
        mode = os.stat(path).st_mode & 0o777
        problem = None if os.access(path, os.R_OK) else "permission denied"
        return FileFacts(path=path, what=what, mode=mode, problem=problem)

    return _within_time(path, look, lambda problem: FileFacts(path=path, what=what, mode=0, problem=problem))


def _descriptors_hard() -> int | None:
    try:
        import resource
    except ModuleNotFoundError:
        return None
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def _kernel_clock() -> tuple[bool | None, float | None]:
    """Return whether the kernel takes the clock for synchronised, and its largest error in milliseconds."""
    data = ctypes.create_string_buffer(_TIMEX_BYTES)
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(data)
    except (OSError, AttributeError, TypeError):
        return None, None
    if state < 0 or struct.calcsize("l") != 8:
        return None, None
    (error_us,) = struct.unpack_from("l", data, _TIMEX_MAX_ERROR_AT)
    return state != _UNSYNCHRONISED, error_us / 1000


def _swap_bytes() -> int | None:
    for line in (_text(Path("/proc/meminfo")) or "").splitlines():
        if line.startswith("SwapTotal:"):
            return int(line.split()[1]) * 1024
    return None


def _is_compiled() -> bool:
    from kalda.protocol.fast import implementation as of_requests
    from kalda.records import implementation as of_records

    return of_records.is_compiled() and of_requests.is_compiled


def _text(path: Path) -> str | None:
    with contextlib.suppress(OSError):
        # A mount point may have any bytes in its name.
        return path.read_text(errors="surrogateescape").strip()
    return None


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
