"""etcd servers as child processes for tests, of the system's package ``etcd-server``.

Where it is missing the tests are skipped, and the reason says so. Each server keeps its ports over restarts.
"""

import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from kalda.testing.ports import free_ports

START_SECONDS = 60.0
STOP_SECONDS = 20.0
_PORT_ATTEMPTS = 5


def missing() -> str | None:
    """Say what etcd cannot be started for, or None."""
    if shutil.which("etcd") is None:
        return "no etcd on PATH (make etcd): nothing was tested against etcd"
    return None


class EtcdServer:
    """One member of a cluster."""

    def __init__(self, directory: Path, name: str, options: Sequence[str]) -> None:
        self._directory = directory
        self.name = name
        self.options = list(options)
        self.port, self.peer_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def peer(self) -> str:
        return f"{self.name}=http://127.0.0.1:{self.peer_port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def forget(self) -> None:
        """Remove the data of a server that is down."""
        assert not self.is_running
        shutil.rmtree(self._directory / self.name)

    def spawn(self, initial: str, state: str = "new") -> None:
        """Start it; `state` is ``existing`` for one that joins a cluster."""
        self._directory.mkdir(parents=True, exist_ok=True)
        scheme = "https" if "--cert-file" in self.options else "http"
        with (self._directory / f"{self.name}.output").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    "etcd",
                    *("--name", self.name),
                    *("--data-dir", str(self._directory / self.name)),
                    *("--listen-client-urls", f"{scheme}://{self.endpoint}"),
                    *("--advertise-client-urls", f"{scheme}://{self.endpoint}"),
                    *("--listen-peer-urls", f"http://127.0.0.1:{self.peer_port}"),
                    *("--initial-advertise-peer-urls", f"http://127.0.0.1:{self.peer_port}"),
                    *("--initial-cluster", initial),
                    *("--initial-cluster-state", state),
                    *("--heartbeat-interval", "100"),
                    *("--election-timeout", "1000"),
                    *("--logger", "zap"),
                    *self.options,
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_SECONDS)
            self._process = None

    def pause(self) -> None:
        """Stop it from running until `resume`; its connections stay open and are not answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def output(self) -> str:
        return (self._directory / f"{self.name}.output").read_text(errors="replace")[-2000:]


class EtcdCluster:
    """One or three servers; a context manager."""

    def __init__(self, directory: Path, servers: int = 1, options: Sequence[str] = ()) -> None:
        self.directory = directory
        self._count = servers
        self._options = options
        self.servers: list[EtcdServer] = []

    @property
    def hosts(self) -> str:
        """The servers as in an address."""
        return ",".join(server.endpoint for server in self.servers)

    def start(self) -> None:
        """Start all and return when they have a leader."""
        for attempt in range(_PORT_ATTEMPTS):
            directory = self.directory / f"etcd-{attempt}"
            self.servers = [
                EtcdServer(directory, f"m{number}", self._options) for number in range(self._count)
            ]
            for server in self.servers:
                server.spawn(self._initial())
            serving = [self._is_serving(server) for server in self.servers]
            if all(serving):
                return
            self.stop()
        raise RuntimeError(f"etcd does not start; it says: {self.servers[0].output()}")

    def restart(self, server: EtcdServer) -> None:
        """Start a killed server on its data again."""
        server.spawn(self._initial())
        assert self._is_serving(server), server.output()

    def replace(self, server: EtcdServer) -> None:
        """Kill a server, and let one with the same name and addresses and no data join in its place."""
        server.kill()
        while (member_id := self._member_id(server)) is not None:
            self._ctl_again("member", "remove", member_id)
        server.forget()
        self._ctl_again("member", "add", server.name, f"--peer-urls=http://127.0.0.1:{server.peer_port}")
        server.spawn(self._initial(), "existing")
        assert self._is_serving(server), server.output()

    def leader(self) -> EtcdServer:
        """Return the server that leads, as one that runs says."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for server in self.servers:
                if server.is_running:
                    found = self.ctl("endpoint", "status", "-w", "fields", server=server, check=False)
                    fields = dict(
                        line.replace('"', "").split(" : ", 1) for line in found.splitlines() if " : " in line
                    )
                    if fields.get("MemberID") and fields.get("MemberID") == fields.get("Leader"):
                        return server
            time.sleep(0.05)
        raise RuntimeError("etcd has no leader")

    def ctl(
        self, *arguments: str, server: EtcdServer | None = None, check: bool = True, text: str | None = None
    ) -> str:
        """Run etcdctl against one server, or all that run; it reads `text` from its standard input."""
        endpoints = (
            server.endpoint
            if server is not None
            else ",".join(each.endpoint for each in self.servers if each.is_running)
        )
        done = subprocess.run(
            ["etcdctl", "--endpoints", endpoints, *arguments],
            env={"ETCDCTL_API": "3", "PATH": os.environ["PATH"]},
            capture_output=True,
            input=text,
            text=True,
            timeout=60,
            check=False,
        )
        if check and done.returncode:
            raise RuntimeError(f"etcdctl {arguments}: {done.stdout}{done.stderr}")
        return done.stdout

    def compact(self) -> None:
        """Drop what is older than the present revision."""
        try:
            self.ctl("compact", str(self.revision()), "--physical", server=self.leader())
        except RuntimeError as error:
            # Nothing was written since the last compaction.
            if "has been compacted" not in str(error):
                raise

    def revision(self) -> int:
        """Return the revision of the store."""
        status = self.ctl("endpoint", "status", "-w", "fields", server=self.leader())
        return int(status.split('"Revision" : ')[1].split()[0])

    def stop(self) -> None:
        """End all."""
        for server in self.servers:
            server.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _initial(self) -> str:
        return ",".join(server.peer for server in self.servers)

    def _member_id(self, server: EtcdServer) -> str | None:
        members = [line.split(", ") for line in self._ctl_again("member", "list").splitlines()]
        return next((fields[0] for fields in members if fields[2] == server.name), None)

    def _ctl_again(self, *arguments: str) -> str:
        """Run etcdctl until it succeeds, and return what it prints; empty if an attempt before succeeded.

        etcd may have no leader, and adds no member before all others have been connected for 5 seconds.
        """
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return self.ctl(*arguments)
            except RuntimeError as error:
                # An attempt without an answer may have succeeded.
                if "not found" in str(error) or "already" in str(error):
                    return ""
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _is_serving(self, server: EtcdServer) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and server.is_running:
            if "--cert-file" in server.options:
                if "ready to serve client requests" in server.output():
                    return True
            else:
                try:
                    with urllib.request.urlopen(f"http://{server.endpoint}/health", timeout=60) as response:
                        if b'"true"' in response.read():
                            return True
                except (OSError, urllib.error.URLError):
                    pass
            time.sleep(0.05)
        return False


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """One server that the tests of a worker share, each with a prefix of its own."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster
