"""A command that is a fork is the same to its caller as a process that has been started."""

import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import forked_commands
from tests.fork_server import KEPT_SIGNALS
from tests.forked_commands import KALDA, SWITCH

pytestmark = pytest.mark.skipif(os.environ.get(SWITCH) == "0", reason=f"{SWITCH}=0 turns the forks off")


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What C's environment has from readline, and Python's has not."""
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["version"], {}),
        (["completoin"], {}),
        (["topics", "list"], {"env": {**os.environ, "KALDA_BOOTSTRAP_SERVER": "127.0.0.1:1"}}),
        (["schemas", "test", "a.avsc", "b.avsc"], {}),
        (["--help"], {"env": {**os.environ, "COLUMNS": "60"}}),
        (["completion", "bash"], {"text": False}),
    ],
)
def test_streams_and_exit_status_are_the_same(
    tmp_path: Path, arguments: list[str], options: dict[str, Any]
) -> None:
    options = {"capture_output": True, "text": True, "cwd": tmp_path, "timeout": 100, **options}

    expected = subprocess.run([*KALDA, *arguments], check=False, **options)
    done = forked_commands.run([*KALDA, *arguments], **options)

    assert vars(expected) == vars(done)


@pytest.mark.parametrize("way", ["script", "module"])
@pytest.mark.parametrize(
    "end",
    ["", "sys.exit(3)", "sys.exit('why')", "1 / 0", "raise KeyboardInterrupt", "os.kill(os.getpid(), 15)"],
)
def test_a_program_begins_and_ends_in_the_same_way(tmp_path: Path, way: str, end: str) -> None:
    (tmp_path / "beside.py").write_text("")
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(f"""
            import atexit, os, signal, sys
            import beside
            atexit.register(print, "at exit")
            print(sys.argv, sys.orig_argv, sys.path[0], __name__, sorted(os.environ), sys.stdin.read())
            print([signal.getsignal(each) for each in sorted(signal.valid_signals())], file=sys.stderr)
            print(os.listdir("/proc/self/fd"), os.getcwd(), sys.stdout, sys.stderr.line_buffering)
            {end}
        """)
    )
    command = [sys.executable, *([str(program)] if way == "script" else ["-m", "program"]), "word"]
    options: dict[str, Any] = {"capture_output": True, "text": True, "cwd": tmp_path, "input": "read"}

    expected = subprocess.run(command, check=False, **options)
    done = forked_commands.run(command, **options)

    assert expected.stdout == done.stdout
    assert expected.returncode == done.returncode
    # The frames of a traceback differ.
    assert expected.stderr.splitlines()[::-1][:1] == done.stderr.splitlines()[::-1][:1]
    assert expected.stderr.splitlines()[0] == done.stderr.splitlines()[0]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_signals_that_the_parent_ignores_now_stay_ignored(tmp_path: Path, handler: signal.Handlers) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        f"import signal; print([signal.getsignal(each) for each in {[*map(int, KEPT_SIGNALS)]}])"
    )
    options: dict[str, Any] = {"capture_output": True, "text": True}
    before = [signal.signal(each, handler) for each in KEPT_SIGNALS]
    try:
        expected = subprocess.run([sys.executable, str(program)], check=True, **options)
        done = forked_commands.run([sys.executable, str(program)], **options)
    finally:
        for number, each in zip(KEPT_SIGNALS, before, strict=True):
            signal.signal(number, each)

    assert expected.stdout == done.stdout


def test_limits_that_the_parent_has_now_are_inherited(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))")
    # The server of commands runs before the limit changes.
    forked_commands.run([sys.executable, str(program)], check=True, stdout=subprocess.DEVNULL)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        done = forked_commands.run(
            [sys.executable, str(program)], check=True, stdout=subprocess.PIPE, text=True
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert f"{(soft - 1, hard)}\n" == done.stdout


def test_a_command_reads_what_is_written_and_ends_by_a_signal() -> None:
    command = [*KALDA, "produce", "nowhere", "--bootstrap-server", "127.0.0.1:1"]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with forked_commands.Popen[bytes](command, **pipes) as process:
        parent = psutil.Process(process.pid).parent()
        assert parent is not None
        assert str(forked_commands.SERVER) in parent.cmdline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.001)
        assert process.poll() is None
        process.kill()
        assert -signal.SIGKILL == process.wait(60) == process.poll()
    assert not psutil.pid_exists(process.pid)


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ([*KALDA, "version"], {"env": {**os.environ, "PYTHONHASHSEED": "0"}}),
        ([*KALDA, "version"], {"pass_fds": [0]}),
        ([sys.executable, "-c", "import os, time; print(os.getppid()); time.sleep(600)"], {}),
    ],
)
def test_what_a_fork_cannot_do_starts_a_process(command: list[str], options: dict[str, Any]) -> None:
    with forked_commands.Popen[bytes](command, stdout=subprocess.PIPE, **options) as process:
        assert os.getpid() == psutil.Process(process.pid).ppid()
        process.kill()
