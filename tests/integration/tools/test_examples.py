"""The examples of the help screens work."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kalda import Admin, OffsetSpec, Producer, TopicPartition
from kalda.cli import app
from kalda.cli_tools import SECTIONS, TOOLS, load_tool
from kalda.command.examples import ELSEWHERE, EXAMPLES
from kalda.testing import KaldaProcess
from kalda.testing.ports import free_ports_in_a_row
from kalda.testing.process import CommandProcess
from tests import forked_commands
from tests.integration.tools.commands import KALDA
from tests.integration.tools.example_lines import examples_of, run_line, with_addresses, words_of

OF_ANOTHER_TIME = {
    "groups remove-members",
    "transactions describe",
    "transactions abort",
    "transactions force-terminate",
    "delegation-tokens create",
    "delegation-tokens describe",
    "delegation-tokens renew",
    "delegation-tokens expire",
    "acls add",
    "acls list",
    "acls remove",
    "elect-leaders",
    "zk security-migration",
    "cluster decommission",
}
"""What needs members, transactions or security that one plain broker does not have; the broker says so."""


def leaves(path: str, command: click.Command) -> Iterator[str]:
    """Return the commands that do something."""
    if not isinstance(command, click.Group):
        yield path
        return
    for name, below in command.commands.items():
        if not below.hidden:
            yield from leaves(f"{path} {name}".strip(), below)


def test_every_command_has_an_example() -> None:
    servers = {name for name, command in app.commands.items() if name not in TOOLS and not command.hidden}
    known = servers | {leaf for name in TOOLS for leaf in leaves(name, load_tool(name))}
    assert known == EXAMPLES.keys()


def test_every_command_is_in_one_section_of_the_list() -> None:
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted({*TOOLS, *app.commands}) == sorted(listed)


def test_the_examples_of_commands_that_need_more_than_a_broker_have_tests_of_their_own() -> None:
    """Here: servers, `mirror` and `legacy`; those of `mcp` in `test_mcp.py`, those of `http` in
    `tests/integration/http`, and those of
    `pipeline` in `tests/spark`, which need Spark; `schemas` needs a registry, as `test_schemas.py` has,
    `share-groups` a share consumer, as `test_share_groups.py` has, and `nats` a listener of NATS, as
    `tests/integration/nats` has.

    `migrate` replaces brokers of Apache Kafka, as `tests/compat/test_migrate.py` does; `coordination` needs
    two engines, as `tests/integration/etcd/test_coordination_tool.py` has.
    """
    servers = {"start", "broker", "zookeeper", "testing"}
    others = {
        "http",
        "migrate",
        "coordination",
        "mcp",
        "mirror",
        "simulate",
        "legacy",
        "pipeline",
        "schemas",
        "share-groups",
        "nats",
    }
    assert {*servers, *others} == set(ELSEWHERE)


@pytest.mark.timeout(600)  # some two hundred processes, one after another
def test_the_examples_run(tmp_path: Path) -> None:
    """In their order, which is the life of a topic."""
    settings = {"kalda.faults.api.enable": "true"}
    with KaldaProcess(tmp_path / "kalda-data", settings=settings) as broker:
        failed = []
        environment = {"KALDA_BOOTSTRAP_SERVER": broker.bootstrap}
        for path, lines in EXAMPLES.items():
            if path.startswith(ELSEWHERE):
                continue
            allowed = (0, 1) if path in OF_ANOTHER_TIME else (0,)
            for line in lines:
                option = "--zookeeper.connect" if "security-migration" in path else "--zookeeper"
                more = (option, broker.zookeeper) if path.startswith("zk ") else ()
                done = run_line(line, tmp_path, environment, more)
                if done.returncode not in allowed:
                    failed.append((line, done.returncode, done.stderr))
    assert not failed, "\n".join(map(str, failed))


class Server(CommandProcess):
    """An example of a server, with ports and a directory of its own."""

    def __init__(self, line: str, directory: Path) -> None:
        super().__init__(directory.with_suffix(".log"))
        self._words = [*words_of(line)[0], "--dir", str(directory)]

    def arguments(self) -> list[str]:
        """Return the words of the example."""
        return self._words


def test_the_examples_of_servers_serve_until_they_are_stopped(tmp_path: Path) -> None:
    for number, line in enumerate(examples_of("start")):
        ports = f"--port {free_ports_in_a_row(3)}"
        own = line.replace("--port 9092", ports) if "--port" in line else f"{line} {ports}"
        with Server(own, tmp_path / f"start-{number}") as server:
            assert server.bootstrap
    (coordination,) = examples_of("zookeeper")
    (broker,) = examples_of("broker")
    with Server(
        with_addresses(coordination, {"--port 2181": "--port 0"}), tmp_path / "zookeeper"
    ) as zookeeper:
        addresses = {"--port 9093": "--port 0", "127.0.0.1:2181": zookeeper.zookeeper}
        with Server(with_addresses(broker, addresses), tmp_path / "broker") as server:
            assert server.bootstrap


def test_the_examples_of_mirrors_run(tmp_path: Path) -> None:
    """All but `run` end by themselves."""
    lines = [line for line in examples_of("mirror") if not line.startswith("kalda mirror cutover")]
    _run_mirrors(lines, tmp_path, "DefaultReplicationPolicy")


def test_the_examples_of_cut_overs_run(tmp_path: Path) -> None:
    """In their order: there, and back."""
    (tmp_path / "users.properties").write_text("alice = a password\n")
    lines = [line for line in examples_of("mirror") if line.startswith("kalda mirror cutover")]
    assert lines
    _run_mirrors(lines, tmp_path, "IdentityReplicationPolicy")


def _run_mirrors(lines: list[str], directory: Path, policy: str) -> None:
    with KaldaProcess(directory / "source") as source, KaldaProcess(directory / "target") as target:
        (directory / "mirror.properties").write_text(
            f"clusters = source, target\nsource.bootstrap.servers = {source.bootstrap}\n"
            f"target.bootstrap.servers = {target.bootstrap}\nsource->target.enabled = true\n"
            "replication.factor = 1\noffset-syncs.topic.replication.factor = 1\n"
            f"replication.policy.class = {policy}\n"
        )
        with Producer(bootstrap_servers=source.bootstrap) as producer:
            producer.send("t", b"v")
        for line in lines:
            if line.startswith("kalda mirror run"):
                _stops_when_asked(line, directory, target.bootstrap, "source.t")
                continue
            done = run_line(line, directory, {})
            assert 0 == done.returncode, (line, done.stderr)


def _stops_when_asked(line: str, directory: Path, target: str, topic: str) -> None:
    """Run an example that runs until SIGTERM, which it gets when `topic` has records in the `target`."""
    process = forked_commands.Popen(
        [*KALDA, *words_of(line)[0]], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        with Admin(bootstrap_servers=target) as admin:
            partition, copied = TopicPartition(topic, 0), 0
            while not copied:
                assert process.poll() is None, process.communicate()
                if topic in admin.list_topics():
                    copied = admin.list_offsets({partition: OffsetSpec.latest()})[partition].offset
        process.terminate()
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert 0 == process.returncode, err


def test_the_examples_of_old_tools_run(tmp_path: Path) -> None:
    with KaldaProcess(tmp_path / "data") as broker, KaldaProcess(tmp_path / "target") as target:
        environment = {"KALDA_BOOTSTRAP_SERVER": broker.bootstrap}
        for line in ("kalda topics create flights", "echo 'LH400' | kalda produce flights"):
            assert 0 == run_line(line, tmp_path, environment).returncode
        segments = tmp_path / "data" / "broker-0" / "flights-0"
        (tmp_path / "flights-0").symlink_to(segments)
        old = f"zk.connect={broker.zookeeper}\ngroupid=readers\nautooffset.reset=smallest\n"
        (tmp_path / "consumer.properties").write_text(f"{old}consumer.timeout.ms=1000\n")
        (tmp_path / "producer.properties").write_text(f"zk.connect={broker.zookeeper}\n")
        (tmp_path / "a.conf").write_text(old.replace("readers", "mirror"))
        (tmp_path / "b.conf").write_text(f"broker.list=0:{target.bootstrap}\n")
        addresses = {
            "127.0.0.1:2181": broker.zookeeper,
            "127.0.0.1:9092": broker.bootstrap,
            "kafka://localhost": f"kafka://{broker.bootstrap}",
        }
        for line in examples_of("legacy"):
            by_zookeeper = any(name in line for name in ("OffsetChecker", "ZkOffsets"))
            more = ("--zkconnect", broker.zookeeper) if by_zookeeper else ()
            if "MirrorMaker" in line:
                _stops_when_asked(line, tmp_path, target.bootstrap, "flights")
                continue
            done = run_line(with_addresses(line, addresses), tmp_path, environment, more)
            assert 0 == done.returncode, (line, done.stderr)


def test_help_and_version_are_commands(capsys: pytest.CaptureFixture[str]) -> None:
    app(["help", "topics", "create"], prog_name="kalda", standalone_mode=False)
    shown = capsys.readouterr().out
    assert shown.startswith("Usage: kalda topics create [OPTIONS]")
    assert shown.endswith(
        "\nExample:\n  kalda topics create flights --partitions 4 --config retention.ms=86400000\n"
    )
    app(["version"], prog_name="kalda", standalone_mode=False)
    assert capsys.readouterr().out.startswith("kalda ")
    with pytest.raises(click.UsageError, match="Did you mean 'create'"):
        app(["help", "topics", "creat"], prog_name="kalda", standalone_mode=False)


def test_the_help_of_a_group_shows_examples_of_its_first_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Most people read this screen, and not that of each command."""
    app(["help", "groups"], prog_name="kalda", standalone_mode=False)
    _, _, examples = capsys.readouterr().out.partition("\nExamples:\n")
    assert [
        "kalda groups reset-offsets readers --topic flights --to-earliest --execute",
        "kalda groups list",
        "kalda groups describe readers",
    ] == [line.strip() for line in examples.splitlines()]


def test_the_list_of_commands_is_whole_and_coloured_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    app(["help"], prog_name="kalda", standalone_mode=False)
    plain = capsys.readouterr().out
    assert "..." not in plain.partition("Servers:")[2]
    assert "\x1b" not in plain
    assert "\x1b" in app.get_help(app.context_class(app, info_name="kalda"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in app.get_help(app.context_class(app, info_name="kalda"))
