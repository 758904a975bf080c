"""`kalda zk` against our coordination server and a real ZooKeeper, one-shot and as a shell."""

import contextlib
import os
import pty
import select
import socket
import sys
import time
from collections.abc import Iterator

import pytest

from kalda.testing.process_cluster import ZooKeeperProcess
from tests import forked_commands
from tests.integration.real_zookeeper import RealZooKeeper, missing
from tests.integration.tools.commands import KALDA, Commands

kalda = Commands("")

SECONDS_MAX = 30.0


@pytest.fixture(scope="module", params=["ours", "real"])
def zookeeper(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server; the tree below is the same for both."""
    directory = tmp_path_factory.mktemp("zk") / "data"
    if request.param == "real":
        reason = missing()
        if reason is not None:
            pytest.skip(reason)
        with RealZooKeeper(directory) as server:
            yield server.hosts
    else:
        with ZooKeeperProcess(directory) as process:
            yield process.zookeeper


def test_znodes_are_created_read_changed_and_deleted(zookeeper: str) -> None:
    at = ("--zookeeper", zookeeper)
    assert "/life/a created\n" == kalda("zk", "create", "-p", "/life/a", '{"x": 1}', *at).stdout
    assert '{"x": 1}\n' == kalda("zk", "get", "/life/a", *at).stdout
    assert "version 1 written\n" == kalda("zk", "set", "/life/a", "new", "-v", "0", *at).stdout
    shown = kalda.json("zk", "get", "/life/a", *at)
    assert ("/life/a", "new", 1, 3) == (
        shown["path"],
        shown["data"],
        shown["stat"]["version"],
        shown["stat"]["dataLength"],
    )
    assert "dataVersion = 1\n" in kalda("zk", "stat", "/life/a", *at).stdout
    assert kalda.json("zk", "stat", "/life/a", *at)["stat"] == shown["stat"]
    done = kalda.refused("zk", "set", "/life/a", "x", "--version", "7", *at)
    assert "kalda: /life/a has another version than the expected one\n" == done.stderr

    kalda("zk", "create", "/life/b", *at)
    kalda("zk", "create", "/life/b/c", *at)
    assert "a\nb\n" == kalda("zk", "ls", "/life", *at).stdout
    assert "/life\n/life/a\n/life/b\n/life/b/c\n" == kalda("zk", "ls", "-R", "/life", *at).stdout
    assert ["a", "b"] == kalda.json("zk", "ls", "/life", *at)["children"]
    done = kalda.refused("zk", "rm", "/life", *at)
    assert (1, "kalda: /life has children\n") == (done.code, done.stderr)
    assert "/life and 3 below it deleted\n" == kalda("zk", "rm", "-r", "/life", *at).stdout
    assert "life" not in kalda("zk", "ls", *at).stdout
    done = kalda.refused("zk", "get", "/life", *at)
    assert "kalda: /life or its parent does not exist\n" == done.stderr


def test_the_root_and_a_missing_chroot_are_refused(zookeeper: str) -> None:
    """A wrong address must neither delete everything nor leave znodes behind."""
    done = kalda.refused("zk", "rm", "-r", "/", "--zookeeper", zookeeper)
    assert "/ cannot be deleted" in done.stderr
    done = kalda.refused("zk", "ls", "/", "--zookeeper", f"{zookeeper}/kafak")
    assert f"--zookeeper={zookeeper}/kafak: the chroot does not exist" in done.stderr
    assert "kafak" not in kalda("zk", "ls", "/", "--zookeeper", zookeeper).stdout
    done = kalda.refused("zk", "get", "brokers", "--zookeeper", zookeeper)
    assert "kalda: path 'brokers' must start with /\n" == done.stderr


def test_a_server_that_is_not_there_is_named() -> None:
    done = kalda.refused("zk", "ls", "/", "--zookeeper", "127.0.0.1:1")

    assert "kalda: no connection to 127.0.0.1:1: Connection refused; --zookeeper=127.0.0.1:1" in done.stderr


def test_a_server_that_is_silent_is_waited_for_and_reported() -> None:
    """It may be starting."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = kalda.refused("zk", "ls", "/", "--zookeeper", address, "--connection-timeout-ms", 2000)

    waits, ends = done.stderr.splitlines()
    assert f"kalda: waiting for a ZooKeeper session at --zookeeper={address}" == waits
    assert f"--zookeeper={address} took a session within 2000 ms (--connection-timeout-ms): " in ends


def test_the_shell_executes_lines_of_a_pipe(zookeeper: str) -> None:
    """Operators put commands into files; one that fails must not be overlooked."""
    lines = (
        "create /pipe text\n# a comment\n\ncd /pipe\ncreate 'a b' x\nls\nget ../pipe\nfly\n"
        "rm -r .\nquit\nls /\n"
    )
    done = kalda.run("zk", "shell", "--zookeeper", zookeeper, stdin=lines)

    assert ["/pipe created", "/pipe/a b created", "a b", "text", "/pipe and 1 below it deleted"] == (
        done.stdout.splitlines()
    )
    wrong, last = done.stderr.splitlines()
    assert wrong.startswith("kalda: fly is no command; known are ls, get, set, create, rm, stat, cd, ")
    assert (1, "kalda: 1 of the commands failed") == (done.code, last)


class Terminal:
    """A process on a pseudo terminal."""

    def __init__(self, *arguments: str) -> None:
        self._end, other = pty.openpty()
        self.process = forked_commands.Popen(
            [*KALDA, *arguments], stdin=other, stdout=other, stderr=other, env={**os.environ, "TERM": "vt100"}
        )
        os.close(other)
        self.text = ""

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def expect(self, text: str) -> None:
        """Read until `text` appears behind what was expected before."""
        deadline = time.monotonic() + SECONDS_MAX
        while text not in self.text:
            ready, _, _ = select.select([self._end], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} does not appear in {self.text!r}"
            with contextlib.suppress(OSError):  # Linux raises EIO when the process has closed its end
                self.text += os.read(self._end, 4096).decode()
                continue
            assert text in self.text, f"{text!r} does not appear in {self.text!r}"
        self.text = self.text[self.text.index(text) + len(text) :]

    def close(self) -> int:
        try:
            return self.process.wait(SECONDS_MAX)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self._end)


@pytest.mark.skipif(sys.platform != "linux", reason="pseudo terminals differ: the shell was not tried on one")
def test_the_shell_has_a_prompt_and_completes_paths(zookeeper: str) -> None:
    kalda("zk", "create", "-p", "/terminal/departures/gates", "B7", "--zookeeper", zookeeper)
    terminal = Terminal("zk", "shell", "--zookeeper", zookeeper)
    try:
        terminal.expect(f"{zookeeper} /> ")
        terminal.type("cd /termi\tdep\t\n")
        terminal.expect("/terminal/departures> ")
        terminal.type("ge\tga\t\n")
        terminal.expect("B7")
        terminal.expect("> ")
        terminal.type("get nowhere\n")
        terminal.expect("kalda: /terminal/departures/nowhere or its parent does not exist")
        terminal.expect("> ")
        terminal.type("\x04")
    finally:
        code = terminal.close()
    assert 0 == code
    kalda("zk", "rm", "-r", "/terminal", "--zookeeper", zookeeper)
