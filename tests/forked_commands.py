"""Runs programs that use `kalda` in processes that do not import it again: each is a fork of one that has.

`Popen` and `run` are those of `subprocess`. A process that they start has arguments, environment, directory,
streams, signals and exit status as any other; what differs is that its modules are loaded before it begins.
A process of a test takes a fifth of the processor time so; ``KALDA_FORKED_COMMANDS=0`` turns it off.
Tests of the start itself, of imports and of memory start a process of their own with `subprocess`.
"""

import atexit
import inspect
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, AnyStr, Final

from tests.fork_server import KEPT_SIGNALS, LIMITS, NUMBER_BYTES, SIZE_BYTES
from tests.leftovers import SHARED_SOCKETS

KALDA: Final = (sys.executable, "-m", "kalda")
SERVER: Final = Path(__file__).parent / "fork_server.py"
SWITCH: Final = "KALDA_FORKED_COMMANDS"
"""The variable that turns the forks off with the value 0; each process starts then."""

_IS_SUPPORTED: Final = hasattr(os, "pidfd_open")
_READ_AT_START: Final = ("PYTHON", "KALDA_", "LANG", "LC_", "LD_", "MALLOC_")
"""Prefixes of the variables that an interpreter or a module reads once, before a fork has its own."""
_READ_LATER: Final = ("PYTHONFAULTHANDLER", "KALDA_BOOTSTRAP_SERVER", "KALDA_TEST_BOOTSTRAP")
_SIGNATURE: Final = inspect.signature(
    subprocess.Popen._execute_child  # type: ignore[attr-defined]  # typeshed leaves it out
)
_ENDS: Final = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")


class CommandServer:
    """The process that forks for each command; it ends with this one."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._control, theirs = socket.socketpair()
        self._environment: Final = read_at_start(os.environ)
        SHARED_SOCKETS.append(lambda: [self._control.fileno()])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        atexit.register(self._close)

    def serves(self, environment: Mapping[str, str]) -> bool:
        """Return whether a process with the environment would import the same."""
        return self._environment == read_at_start(environment)

    def start(self, request: Mapping[str, object], streams: Sequence[int]) -> int:
        """Start a command; return the descriptor that its process id and then its exit status come from."""
        content = json.dumps(request).encode()
        report, theirs = os.pipe()
        try:
            with self._lock:
                size = len(content).to_bytes(SIZE_BYTES, "big")
                socket.send_fds(self._control, [size], [*streams, theirs])
                self._control.sendall(content)
        except BaseException:
            os.close(report)
            raise
        finally:
            os.close(theirs)
        return report

    def _close(self) -> None:
        self._control.close()
        self._process.wait()


class Popen(subprocess.Popen[AnyStr]):
    """A process that is a fork where that makes no difference, and as any other otherwise."""

    _report: int | None = None
    """Where the exit status of a fork comes from."""

    def _execute_child(self, *given: Any) -> None:
        options = _SIGNATURE.bind(self, *given).arguments
        environment = {**(os.environ if options["env"] is None else options["env"])}
        server = command_server() if is_forkable(options) else None
        if server is None or not server.serves(environment):
            super()._execute_child(*given)  # type: ignore[misc]  # typeshed leaves it out
            return
        request = {
            "arguments": [os.fsdecode(each) for each in options["args"][1:]],
            "environment": environment,
            "directory": os.path.abspath(os.fsdecode(options["cwd"] or ".")),
            "is_session": bool(options["start_new_session"]),
            "limits": {number: resource.getrlimit(number) for number in LIMITS},
            "ignored": [each for each in KEPT_SIGNALS if signal.getsignal(each) == signal.SIG_IGN],
        }
        given_streams = [options[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        streams = [number if given == -1 else given for number, given in enumerate(given_streams)]
        self._report = server.start(request, streams)
        ends = [options[name] for name in _ENDS]
        self._close_pipe_fds(*ends)  # type: ignore[attr-defined]  # typeshed leaves it out
        self.pid = read_number(self._report)
        self._child_created = True

    def _internal_poll(self, *given: Any, **options: Any) -> int | None:
        if self._report is None:
            return super()._internal_poll(*given, **options)  # type: ignore[misc, no-any-return]  # as above
        return self._ended(0)

    def _wait(self, timeout: float | None) -> int:
        if self._report is None:
            return super()._wait(timeout)  # type: ignore[misc, no-any-return]  # typeshed leaves it out
        code = self._ended(timeout)
        if code is None:
            assert timeout is not None, "a wait without a limit ends with the process"
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _ended(self, seconds_max: float | None) -> int | None:
        """Wait for the end of a fork; return its exit status, or None where it runs on."""
        assert self._report is not None, "it is a fork"
        if self.returncode is None:
            waiting = select.poll()
            waiting.register(self._report, select.POLLIN)
            if not waiting.poll(None if seconds_max is None else max(0.0, seconds_max) * 1000):
                return None
            with self._waitpid_lock:  # type: ignore[attr-defined]  # typeshed leaves it out
                # Another thread may have read it.
                if self.returncode is None:
                    self.returncode = read_number(self._report)
        return self.returncode

    def __del__(self, *given: Any, **options: Any) -> None:
        super().__del__(*given, **options)
        if self._report is not None:
            os.close(self._report)


def run(
    arguments: Sequence[str],
    *,
    input: str | bytes | None = None,  # the name that subprocess.run has
    timeout: float | None = None,
    check: bool = False,
    capture_output: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a command to its end, as `subprocess.run` does."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    process: Popen[Any] = Popen(arguments, **options)
    with process:
        try:
            stdout, stderr = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
    if check:
        done.check_returncode()
    return done


@cache
def command_server() -> CommandServer:
    """Return the server of this process."""
    return CommandServer()


def is_forkable(options: Mapping[str, Any]) -> bool:
    """Return whether a fork can do what `subprocess.Popen` was asked for."""
    arguments = options["args"]
    return (
        "0" != os.environ.get(SWITCH)
        and _IS_SUPPORTED
        and not isinstance(arguments, (str, bytes, os.PathLike))
        and len(arguments) > 1
        and sys.executable == arguments[0]
        and (arguments[1] == "-m" or str(arguments[1]).endswith(".py"))
        and options["executable"] is None
        and options["preexec_fn"] is None
        and not any(options[name] for name in ("pass_fds", "shell"))
        and all(options[name] in (None, -1) for name in ("gid", "gids", "uid", "umask", "process_group"))
    )


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a fork cannot have of its own."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_START) and name not in _READ_LATER
    }


def read_number(report: int) -> int:
    """Read what the server writes about a fork."""
    written = os.read(report, NUMBER_BYTES)
    assert NUMBER_BYTES == len(written), "the server of commands has ended"
    return int.from_bytes(written, "big", signed=True)
