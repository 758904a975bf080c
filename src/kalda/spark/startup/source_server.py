"""Keeps a process that has imported what the source of a stream needs, and forks it for each further stream.

Spark starts a Python process for the source of each streaming query and ends it with the query. Two thirds of
the time until its first answer are imports. The first of these processes of a session forks a server after
the imports; each later one is a *client*: it hands its environment, directory and standard streams to the
server, which forks a process with them, and it ends when that process ends:

    virtual machine ── starts ──> client ── descriptors ──> server ── forks ──> source
           └───────────── the source connects, as its environment says ───────────┘

Spark sees no difference: the source sends its own process id, and a client that Spark ends takes the source
with it. A client that gets no answer from a server imports and runs the module itself.

The server belongs to one virtual machine and to one user. It ends with the virtual machine, and when it has
had no source for `IDLE_SECONDS`. Only Linux has what this takes: names of sockets without a file, and file
descriptors of processes.

`sitecustomize` loads this module by its path before a client has imported anything; so it needs nothing but
the standard library.
"""

import array
import contextlib
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
import time
import traceback
import zlib
from collections.abc import Mapping
from importlib import import_module
from typing import Final, NamedTuple, NoReturn

SOURCE_MODULE: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""What Spark runs with ``-m`` in the process of a stream's source."""

PRELOADED: Final = ("kalda.spark.datasource", "kalda.spark.source.reader", SOURCE_MODULE)
"""What a source imports. None of it may start a thread, which a fork would not have."""

SWITCH: Final = "KALDA_SPARK_KEEP_SOURCE"
"""The environment variable that turns the server off with ``0``."""

IDLE_SECONDS: Final = 300.0
"""How long the server stays without a source; a query that runs every few minutes finds it."""

ANSWER_SECONDS: Final = 5.0
"""How long a client waits for a fork before it does the work itself."""

REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of the environment and the name of the directory; Linux allows an environment of 2 MB or more."""

STREAMS: Final = 3
"""Standard input, output and error."""

_OF_ONE_PROCESS: Final = "PYTHON_WORKER_FACTORY_"
"""What the variables begin with that say how a process connects to the virtual machine."""

_SIZE: Final = struct.Struct(">I")
_STATUS: Final = struct.Struct(">i")
_OFFER: Final = b"\1"
_ACCEPTANCE: Final = b"\2"
"""The server forks for a client that still waits for it: of two sources, Spark would lose one."""
_NOT_STARTED: Final = -(1 << 15)
"""In place of an exit status: the client has to run the source."""
_CREDENTIALS: Final = struct.Struct("3i")
"""Process, user and group of a peer."""


def is_possible() -> bool:
    """Return whether the system has what a server needs, and nobody has turned it off."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and os.environ.get(SWITCH, "1") != "0"


def address(parent: int) -> str:
    """Return the name of the server's socket for the sources that the process `parent` starts.

    Processes whose interpreter, paths or hashes differ have servers of their own.
    """
    kind = repr((sys.executable, sys.version, sys.path, os.environ.get("PYTHONHASHSEED")))
    return f"\0kalda-spark-source-{os.getuid()}-{parent}-{zlib.crc32(kind.encode()):08x}"


# The client.


def run_in_fork(name: str) -> None:
    """Let a server run the source, and end with its exit status; return if no server answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect(name)
            if _user_of(connection) != os.getuid():
                return
            request = json.dumps(Request(dict(os.environ), os.getcwd())).encode()
            socket.send_fds(connection, [_SIZE.pack(len(request))], list(range(STREAMS)))
            connection.sendall(request)
            if connection.recv(1) != _OFFER:
                return
            connection.sendall(_ACCEPTANCE)
        except OSError:
            return
        connection.settimeout(None)
        status = b""
        while len(status) < _STATUS.size:
            part = connection.recv(_STATUS.size - len(status))
            if not part:
                # The server has died, and its sources lose their connection to it as well.
                os._exit(1)
            status += part
        (code,) = _STATUS.unpack(status)
        if code == _NOT_STARTED:
            return
        # Not by `sys.exit`: the interpreter has not finished its own start.
        os._exit(code & 0xFF if code >= 0 else 128 - code)


# The server.


def preload_and_serve(name: str, parent: int) -> None:
    """Import what a source needs, and fork a server; the caller goes on as a source without a server.

    In the fork of a later source, this function runs the source and does not return.
    """
    try:
        for each in PRELOADED:
            import_module(each)
        # It runs as `__main__` instead, which Python warns of where it is imported as well.
        del sys.modules[SOURCE_MODULE]
    except ImportError:
        # The process that Spark started says what is missing.
        return
    with contextlib.suppress(OSError):
        if not _may_fork():
            return
        watched = os.pidfd_open(parent)
        try:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with listener:
                listener.bind(name)
                listener.listen()
                if os.fork() == 0:
                    _serve_and_exit(listener, watched)
        finally:
            os.close(watched)


def _may_fork() -> bool:
    """Return whether this process has no thread but its first one and that of pyarrow's jemalloc.

    jemalloc prepares for forks, and a fork begins without its thread.
    """
    for each in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{each}/comm", "rb") as file:
            if int(each) != os.getpid() and not file.read().startswith(b"jemalloc"):
                return False
    return True


def _serve_and_exit(listener: socket.socket, watched: int) -> NoReturn:
    status = 1
    try:
        os.setsid()
        _leave_streams()
        gc.freeze()
        Server(listener, watched).run()
        status = 0
    finally:
        os._exit(status)


def _leave_streams() -> None:
    """Hold none of the streams of the first source: a reader waits until all copies are closed."""
    null = os.open(os.devnull, os.O_RDWR)
    for each in range(STREAMS):
        os.dup2(null, each)
    os.close(null)


class Server:
    """Forks a process for each client until its virtual machine ends, or nobody has needed it for long."""

    def __init__(self, listener: socket.socket, watched: int) -> None:
        """
        Args:
            listener: Where clients connect.
            watched: The descriptor of the process of the virtual machine.
        """
        self._listener: Final = listener
        self._watched: Final = watched
        self._selector: Final = selectors.DefaultSelector()
        self._sources: Final[dict[int, tuple[int, socket.socket]]] = {}
        """By the descriptor of the source's process: its id, and its client's connection."""
        self._by_connection: Final[dict[int, int]] = {}
        """The descriptor of the source's process by that of its client's connection."""

    def run(self) -> None:
        """Serve; returns when there is nobody to serve any more."""
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._watched, selectors.EVENT_READ)
        used_at = time.monotonic()
        while self._sources or (self._is_open and time.monotonic() - used_at < IDLE_SECONDS):
            for key, _ in self._selector.select(IDLE_SECONDS):
                used_at = time.monotonic()
                if self._selector.get_map().get(key.fd) is not key:
                    # An event before this one has closed the descriptor, and its number may be in use again.
                    continue
                if key.fd == self._watched:
                    for process, _ in self._sources.values():
                        os.kill(process, signal.SIGTERM)
                    return
                if key.fd == self._listener.fileno():
                    self._accept()
                elif key.fd in self._sources:
                    self._source_ended(key.fd)
                elif key.fd in self._by_connection:
                    self._client_left(key.fd)

    @property
    def _is_open(self) -> bool:
        return self._listener.fileno() >= 0

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            # As without descriptors. The next source finds no server, and forks one.
            self._selector.unregister(self._listener)
            self._listener.close()
            return
        connection.settimeout(ANSWER_SECONDS)
        descriptors: list[int] = []
        try:
            if _user_of(connection) != os.getuid():
                raise ValueError("the client belongs to another user")
            request = _request(connection, descriptors)
            connection.sendall(_OFFER)
            if connection.recv(1) != _ACCEPTANCE:
                raise ValueError("the client has left")
            if not self._start(connection, descriptors, request):
                connection.sendall(_STATUS.pack(_NOT_STARTED))
                connection.close()
        except (OSError, ValueError):
            # The client runs the source itself.
            connection.close()
        finally:
            for each in descriptors:
                os.close(each)

    def _start(self, connection: socket.socket, descriptors: list[int], request: "Request") -> bool:
        """Fork a source; return whether it runs."""
        process = 0
        try:
            process = os.fork()
            if process == 0:
                self._become_source(connection, descriptors, request)
            handle = os.pidfd_open(process)
        except OSError:
            if process:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
            return False
        self._sources[handle] = process, connection
        self._by_connection[connection.fileno()] = handle
        self._selector.register(handle, selectors.EVENT_READ)
        self._selector.register(connection, selectors.EVENT_READ)
        return True

    def _source_ended(self, handle: int) -> None:
        process, connection = self._sources.pop(handle)
        _, status = os.waitpid(process, 0)
        self._selector.unregister(handle)
        os.close(handle)
        if self._by_connection.pop(connection.fileno(), None) is not None:
            self._selector.unregister(connection)
        with connection, contextlib.suppress(OSError):
            connection.sendall(_STATUS.pack(os.waitstatus_to_exitcode(status)))

    def _client_left(self, connection: int) -> None:
        """End the source of a client that Spark has ended."""
        process, _ = self._sources[self._by_connection.pop(connection)]
        self._selector.unregister(connection)
        os.kill(process, signal.SIGTERM)

    def _become_source(
        self, connection: socket.socket, descriptors: list[int], request: "Request"
    ) -> NoReturn:
        """Run the source in a fork, with the environment and the streams of its client."""
        status = 1
        try:
            self._selector.close()
            for each in (self._listener, connection):
                each.close()
            for handle, (_, other) in self._sources.items():
                os.close(handle)
                other.close()
            os.close(self._watched)
            for target, descriptor in enumerate(descriptors):
                os.dup2(descriptor, target)
                os.close(descriptor)
            os.environ.update(request.environment)
            os.chdir(request.directory)
            status = _run_source()
        finally:
            os._exit(status)


def _run_source() -> int:
    """Run the module as ``-m`` does; return its exit status."""
    sys.path.insert(0, os.getcwd())
    try:
        runpy.run_module(SOURCE_MODULE, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        return error.code & 0xFF if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        for each in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                each.flush()
    return 0


class Request(NamedTuple):
    """What a client asks for."""

    environment: dict[str, str]
    directory: str


def _request(connection: socket.socket, descriptors: list[int]) -> Request:
    """Read a client's request; its descriptors are added to a list that the caller closes.

    Raises:
        OSError: The client does not send a whole request in time.
        ValueError: It is none, or its environment is not that of the server, which imports have read.
    """
    size_bytes, control, _, _ = connection.recvmsg(
        _SIZE.size, socket.CMSG_LEN(STREAMS * array.array("i").itemsize)
    )
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            received = array.array("i")
            received.frombytes(data[: len(data) - len(data) % received.itemsize])
            descriptors += received
    if len(size_bytes) != _SIZE.size or len(descriptors) != STREAMS:
        raise ValueError("the request does not begin with a size and the standard streams")
    (size,) = _SIZE.unpack(size_bytes)
    if size > REQUEST_BYTES_MAX:
        raise ValueError(f"the request has {size} bytes; at most {REQUEST_BYTES_MAX} are read")
    text = b""
    while len(text) < size:
        part = connection.recv(size - len(text))
        if not part:
            raise ValueError("the request ends early")
        text += part
    environment, directory = json.loads(text)
    if _lasting(environment) != _lasting(os.environ):
        raise ValueError("the client has another environment")
    return Request(environment, directory)


def _lasting(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that does not say how a process reaches the virtual machine."""
    return {name: value for name, value in environment.items() if not name.startswith(_OF_ONE_PROCESS)}


def _user_of(connection: socket.socket) -> int:
    """Return the user whose process is at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(credentials)
    return int(user)
