"""Runs commands in forks of a process that has imported `kalda`, so that none waits for imports.

`tests.forked_commands` runs this script with the descriptor of its socket. A fork has the arguments,
environment, directory and standard streams of its request, runs a module or a script, and ends as it does.
"""

import atexit
import contextlib
import faulthandler
import gc
import json
import os
import resource
import runpy
import selectors
import signal
import socket
import sys
import threading
import time
from importlib import import_module
from typing import Any, Final

PRELOADED: Final = (
    "kalda.broker.process.broker",
    "kalda.broker.process.broker_processes",
    "kalda.broker.process.secure",
    "kalda.broker.process.standalone",
    "kalda.broker.process.zookeeper",
    "kalda.clients",
    "kalda.clients.admin.admin",
    "kalda.http.server",
    "kalda.testing",
    "kalda.tools.console.consume",
    "kalda.tools.console.produce",
    "kalda.tools.doctor.command",
    "kalda.tools.mirror",
    "kalda.tools.pipeline.group",
    "kalda.tools.reassign",
    "kalda.tools.state.command",
    "kalda.tools.topics",
    "kalda.tools.why.command",
    "kalda.tools.zk.command",
)
"""What most commands need, each if its packages are installed. None of it may start a thread, which a fork
would not have."""
SIZE_BYTES: Final = 4
NUMBER_BYTES: Final = 8
KEPT_SIGNALS: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
"""What a process goes on ignoring when its program starts; `nohup` and a shell's ``&`` ignore them."""
LIMITS: Final = (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_CORE, resource.RLIMIT_FSIZE)
"""What a process inherits, and tests change."""
STREAMS: Final = 4
"""A request has four descriptors: stdin, stdout, stderr, and where the process id and the exit status go."""


def main() -> None:
    """Serve until the other end is closed, and run the command in each fork."""
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in PRELOADED:
        with contextlib.suppress(ModuleNotFoundError):
            import_module(name)
    assert 1 == len(os.listdir("/proc/self/task")), "a module of PRELOADED starts a thread"
    gc.collect()
    gc.freeze()
    request = None
    with contextlib.suppress(KeyboardInterrupt):
        request = serve(control)
    if request is not None:
        run(request)


def serve(control: socket.socket) -> Any:
    """Fork for each request, and return the request in the fork; return None when the other end is closed."""
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is control:
                    received = receive(control)
                    if received is None:
                        kill(selector)
                        return None
                    request, descriptors = received
                    pid = os.fork()
                    if pid == 0:
                        selector.close()
                        control.detach()
                        take_streams(descriptors)
                        return request
                    *streams, report = descriptors
                    for stream in streams:
                        os.close(stream)
                    say(report, pid)
                    selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, report))
                else:
                    assert isinstance(key.fileobj, int)
                    selector.unregister(key.fileobj)
                    os.close(key.fileobj)
                    pid, report = key.data
                    _, status = os.waitpid(pid, 0)
                    say(report, os.waitstatus_to_exitcode(status))
                    os.close(report)


def kill(selector: selectors.BaseSelector) -> None:
    """Kill the forks that still run: the tests have ended, maybe by a crash."""
    for key in selector.get_map().values():
        if key.data is not None:
            signal.pidfd_send_signal(key.fd, signal.SIGKILL)


def receive(control: socket.socket) -> tuple[Any, list[int]] | None:
    """Return the next request and its descriptors, or None at the end."""
    size, descriptors, _, _ = socket.recv_fds(control, SIZE_BYTES, STREAMS)
    if not size:
        return None
    left = int.from_bytes(size, "big")
    pieces = []
    while left:
        pieces.append(control.recv(left))
        left -= len(pieces[-1])
    return json.loads(b"".join(pieces)), descriptors


def say(report: int, number: int) -> None:
    """Write a number; the process that waits for it may have ended."""
    with contextlib.suppress(BrokenPipeError):
        os.write(report, number.to_bytes(NUMBER_BYTES, "big", signed=True))


def take_streams(descriptors: list[int]) -> None:
    """Replace the standard streams, and close everything else."""
    for stream, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, stream)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]  # it is a TextIOWrapper


def run(request: Any) -> None:
    """Run a module or a script in this process, as `python` with the arguments does."""
    arguments = request["arguments"]
    if request["is_session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    for number in KEPT_SIGNALS:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else default)
    if "PYTHONFAULTHANDLER" in os.environ:
        faulthandler.enable()
    for limit, values in request["limits"].items():
        resource.setrlimit(int(limit), values)
    os.chdir(request["directory"])
    sys.orig_argv[:] = [sys.executable, *arguments]
    try:
        if arguments[0] == "-m":
            sys.path[0] = request["directory"]
            sys.argv[:] = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(arguments[0])
            sys.argv[:] = arguments
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as error:
        if isinstance(error.code, int | None):
            end(error.code or 0)
        raise
    end(0)


def end(code: int) -> None:
    """End this process as the interpreter does, but for the objects.

    Each that the interpreter frees is on a page that the fork shares until then. Return where a stream fails.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # typeshed leaves it out
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return
    os._exit(code)


if __name__ == "__main__":
    main()
