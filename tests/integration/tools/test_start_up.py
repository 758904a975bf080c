"""What the command line costs before it does anything, and shell completion."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.tools.commands import Commands

_PROGRAM = """
import atexit, sys
from kalda.cli import main
sys.argv = ["kalda", *sys.argv[1:]]
atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))
main()
"""


HEAVY = (
    "asyncio",
    "kalda.broker",
    "kalda.clients",
    "kalda.protocol",
    "kazoo",
    "numpy",
    "pyarrow",
    "rich",
    "yaml",
)
"""Each of these costs as much as the whole command may, or a good part of it."""

GROUP_PROTOCOLS = (
    "kalda.clients.consumer.group.classic_membership",
    "kalda.clients.consumer.group.consumer_membership",
)
"""The modules that bring all others of the classic protocol and of KIP-848."""


OF_FEW_BROKERS = (
    "cryptography",
    "jwt",
    "kalda.broker.requests.share",
    "kalda.broker.share.assembly",
    "kalda.coordinator.group.share.share_protocol",
    "kalda.coordinator.share.share_shard",
)
"""What share groups and OAUTHBEARER bring with them."""


def modules_after(*arguments: str, bootstrap: str = "") -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        env={**os.environ, "KALDA_BOOTSTRAP_SERVER": bootstrap},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    return set(done.stderr.split())


def test_help_imports_no_client_and_nothing_heavy() -> None:
    assert set() == modules_after("topics", "--help") & set(HEAVY)


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["topics", "list"], {"asyncio", "kalda.clients", "kalda.protocol"}),
        (["cluster", "describe"], {"asyncio", "kalda.clients", "kalda.protocol"}),
        (["groups", "list"], {"asyncio", "kalda.clients", "kalda.protocol"}),
        (["consume", "small"], {"asyncio", "kalda.clients", "kalda.protocol"}),
        (
            ["consume", "small", "--group", "g"],
            {"asyncio", "kalda.clients", "kalda.protocol", GROUP_PROTOCOLS[0]},
        ),
    ],
)
def test_a_command_imports_only_what_it_needs(
    kalda: Commands, arguments: list[str], needed: set[str]
) -> None:
    """Every command pays for an import at the top of a module of the clients."""
    kalda("topics", "create", "small", "--if-not-exists")

    imported = modules_after(*arguments, bootstrap=kalda.bootstrap)

    assert needed >= imported & {*HEAVY, *GROUP_PROTOCOLS}
    if arguments[0] != "consume":
        assert not {
            each
            for each in imported
            if each.startswith(("kalda.clients.telemetry", "kalda.clients.producer."))
        }


def test_a_broker_starts_without_what_few_brokers_need(tmp_path: Path) -> None:
    """Each of these modules costs every start processor time, and every broker memory."""
    environment = {**os.environ, "KALDA_BOOTSTRAP_SERVER": ""}
    command = [sys.executable, "-c", _PROGRAM, "start", "--dir", str(tmp_path), "--port", "0"]
    with (
        (tmp_path.parent / "stderr").open("w+") as errors,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline().startswith("kalda ready")
        process.terminate()
        assert 0 == process.wait(60)
        errors.seek(0)
        modules = set(errors.read().split())
    assert {"kalda.broker.assembly"} == modules & {"kalda.broker.assembly", *OF_FEW_BROKERS}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_call_kalda(shell: str) -> None:
    script = Commands("")("completion", shell).stdout

    assert f"_KALDA_COMPLETE={shell}_complete" in script
    assert {"shell": shell, "script": script.removesuffix("\n")} == Commands("").json("completion", shell)


def completed(line: str, bootstrap: str = "127.0.0.1:1") -> list[str]:
    """The words that bash would offer at the end of a line, asked as its script asks."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "KALDA_BOOTSTRAP_SERVER": bootstrap,
        "_KALDA_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    # The program's name decides the name of the variable.
    program = "import sys; from kalda.cli import main; sys.argv[0] = 'kalda'; main()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kalda comp", {"completion"}),
        ("kalda completion ", {"bash", "zsh", "fish"}),
        ("kalda completion --j", {"--json"}),
        ("kalda start --log-level w", {"warning"}),
    ],
)
def test_words_are_completed(line: str, expected: set[str]) -> None:
    assert expected == set(completed(line))


def test_names_of_topics_are_completed(kalda: Commands) -> None:
    kalda("topics", "create", "flights", "flowers", "trains")

    assert ["flights", "flowers"] == completed("kalda topics describe fl", kalda.bootstrap)
    assert ["trains"] == completed(f"kalda topics delete --bootstrap-server {kalda.bootstrap} --topic t")
    assert [] == completed("kalda topics delete --topic t")


def test_an_unknown_tool_is_one_line_with_the_nearest_name() -> None:
    done = Commands("").refused("completoin")

    assert (2, "") == (done.code, done.stdout)
    assert "kalda: No such command 'completoin'; did you mean 'completion'? See `kalda -h`\n" == done.stderr


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    """The script and the program must agree on how the line is passed."""
    program = tmp_path / "kalda"
    program.write_text(f'#!/bin/sh\nexec {Path(sys.executable).parent}/kalda "$@"\n')
    program.chmod(0o755)
    script = """
source <(kalda completion bash) || exit 1
COMP_WORDS=(kalda topics de) COMP_CWORD=2
_kalda_completion kalda
printf '%s\\n' "${COMPREPLY[@]}"
"""
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ["delete", "describe"] == done.stdout.split()
