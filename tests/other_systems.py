"""Hides from a Python process what macOS or Windows lacks: a run on Linux then finds most of what breaks.

`run_as_on` runs a program in a process that begins with `hide_for`: the module selectors looks for epoll when
it is imported.
"""

import importlib
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import subprocess

ROOT = Path(__file__).parents[1]

PRELUDE = "from tests.other_systems import hide_for\nhide_for({system!r})\n"

ONLY_LINUX = {
    "mmap": ("MADV_HUGEPAGE", "MAP_POPULATE"),
    "os": (
        *("copy_file_range", "eventfd", "fdatasync", "memfd_create", "posix_fadvise", "posix_fallocate"),
        *("sched_getaffinity", "splice"),
        *("MFD_CLOEXEC", "O_DIRECT", "O_TMPFILE"),
    ),
    "select": ("epoll", *(f"EPOLL{event}" for event in ("IN", "OUT", "ERR", "HUP", "RDHUP", "ET"))),
    "signal": ("SIGPWR", "SIGRTMAX", "SIGRTMIN"),
    "socket": ("IP_TRANSPARENT", "IP_BIND_ADDRESS_NO_PORT", "MSG_MORE", "SO_PEERCRED", "TCP_QUICKACK"),
}
NOT_OF_WINDOWS = {
    "mmap": ("MADV_WILLNEED", "MAP_ANONYMOUS", "MAP_PRIVATE", "MAP_SHARED", "PROT_READ"),
    "os": (
        *("chown", "fchmod", "fork", "getegid", "geteuid", "getgid", "getloadavg", "getuid", "killpg"),
        *("pread", "preadv", "pwrite", "pwritev", "register_at_fork", "sendfile", "setsid", "statvfs"),
        *("sysconf", "uname", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK"),
    ),
    "select": ("kqueue", "poll"),
    "signal": (
        *("SIGALRM", "SIGCONT", "SIGHUP", "SIGKILL", "SIGSTOP", "SIGUSR1", "SIGUSR2"),
        *("pthread_kill", "pthread_sigmask", "setitimer"),
    ),
    "socket": ("AF_UNIX", "SO_REUSEPORT"),
}
"""Names of modules that both systems have."""

MODULES_NOT_OF_WINDOWS = ("fcntl", "grp", "pty", "pwd", "readline", "resource", "termios", "tty")

_USED_BY_MODULES_OF_LINUX = (
    *("asyncio", "concurrent.futures", "logging", "multiprocessing", "platform", "shutil", "ssl"),
    *("subprocess", "tempfile", "threading", "uuid"),
    *("click", "kazoo.client", "numpy", "pyarrow"),
)
"""Modules whose files for Linux use what `NOT_OF_WINDOWS` hides; for Windows they have others."""

_HANGS_SECONDS = 120


def hide_for(system: str) -> None:
    """Delete from the modules of this process what `system`, "macos" or "windows", lacks."""
    _hide(ONLY_LINUX)
    if system == "macos":
        return
    _hide({"select": NOT_OF_WINDOWS["select"]})
    for name in _USED_BY_MODULES_OF_LINUX:
        importlib.import_module(name)
    import asyncio
    import socket

    class WithoutReaders(asyncio.SelectorEventLoop):
        """The default loop of Windows has no readers."""

        def add_reader(self, *_: object) -> NoReturn:
            raise NotImplementedError

    asyncio.events.new_event_loop = asyncio.new_event_loop = WithoutReaders
    # Windows has it without AF_UNIX.
    socket.socketpair = partial(socket.socketpair, socket.AF_UNIX)
    _hide(NOT_OF_WINDOWS)
    sys.modules.update(dict.fromkeys(MODULES_NOT_OF_WINDOWS))  # type: ignore[arg-type]  # None: not found
    # It is inherited from a class that cannot be changed.
    socket.socket.sendmsg = _Lacking()  # type: ignore[assignment,method-assign]


def run_as_on(system: str, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a Python program in a process that lacks what `system` lacks; return what it printed."""
    import subprocess  # it imports selectors, before `hide_for` could run

    return subprocess.run(
        [sys.executable, "-c", PRELUDE.format(system=system) + program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=_HANGS_SECONDS,
    )


class _Lacking:
    def __get__(self, instance: object, owner: type) -> None:
        raise AttributeError


def _hide(names: dict[str, tuple[str, ...]]) -> None:
    for module_name, hidden in names.items():
        module = importlib.import_module(module_name)
        for name in hidden:
            if hasattr(module, name):
                delattr(module, name)
