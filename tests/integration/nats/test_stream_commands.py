"""`kalda nats stream` and `kalda nats consumer`, on a broker and on nats-server."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda.command.examples import EXAMPLES
from tests.integration.nats.jetstream_servers import jetstream_broker, nats_server_port
from tests.integration.nats.raw_nats import nats_port
from tests.integration.tools.commands import KALDA
from tests.integration.tools.example_lines import words_of


class Commands:
    """Runs commands against one server."""

    def __init__(self, port: int, *, is_broker: bool) -> None:
        self.port = port
        self.is_broker = is_broker

    def run(self, *words: str, timeout_ms: int = 60_000) -> tuple[int, str, str]:
        options = ["--server", f"127.0.0.1:{self.port}", "--timeout-ms", str(timeout_ms)]
        done = subprocess.run(
            [*KALDA, "nats", *words, *options], capture_output=True, text=True, timeout=200, input=""
        )
        return done.returncode, done.stdout, done.stderr

    def json(self, *words: str) -> dict[str, object]:
        code, output, errors = self.run(*words, "--json")
        assert 0 == code, errors
        found = json.loads(output)
        assert isinstance(found, dict)
        return found


@pytest.fixture(scope="module", params=["broker", "nats-server"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "broker":
        with jetstream_broker(directory / "data") as broker:
            yield Commands(nats_port(broker), is_broker=True)
    else:
        with nats_server_port(directory) as port:
            yield Commands(port, is_broker=False)


def part(found: dict[str, object], name: str) -> dict[str, object]:
    inner = found[name]
    assert isinstance(inner, dict)
    return inner


@pytest.mark.timeout(600)  # some thirty processes, one after another
def test_the_life_of_a_stream_and_its_consumer(server: Commands) -> None:
    created = server.json("stream", "create", "LIFE", "--subjects", "life.*,death", "--max-msgs", "10")
    assert (["life.*", "death"], 10) == (
        part(created, "config")["subjects"],
        part(created, "config")["max_msgs"],
    )
    again = server.json("stream", "create", "LIFE", "--subjects", "life.*,death", "--max-msgs", "10")
    assert part(created, "config") == part(again, "config")
    for number in range(4):
        assert 0 == server.run("pub", f"life.{number}", f"{number}", "-H", "Trace:a1")[0]
    edited = server.json("stream", "edit", "LIFE", "--max-age", "1h", "--description", "a life")
    config = part(edited, "config")
    assert (3_600 * 10**9, 10, "a life") == (config["max_age"], config["max_msgs"], config["description"])
    assert 4 == part(edited, "state")["messages"]
    assert {"streams": ["LIFE"]} == server.json("stream", "ls", "--names", "--subject", "life.7")
    assert "LIFE\n" in server.run("stream", "ls", "--names")[1]
    assert "LIFE" in server.run("stream", "ls")[1]

    message = server.json("stream", "get", "LIFE", "--last-for", "life.*")
    assert ("life.3", 4, "3", [["Trace", "a1"]]) == tuple(
        message[name] for name in ("subject", "seq", "payload", "headers")
    )
    assert (0, "life.0\t0\n", "") == server.run("stream", "get", "LIFE", "1")

    durable = ("consumer", "create", "LIFE", "all", "--wait", "30s", "--max-deliver", "5")
    assert 30 * 10**9 == part(server.json(*durable), "config")["ack_wait"]
    code, output, errors = server.run("consumer", "next", "LIFE", "all", "--count", "3")
    assert (0, "life.0\t0\nlife.1\t1\nlife.2\t2\n", "") == (code, output, errors)
    found = server.json("consumer", "info", "LIFE", "all")
    assert (0, 1, 3) == (
        found["num_ack_pending"],
        found["num_pending"],
        part(found, "ack_floor")["stream_seq"],
    )
    assert 0 == server.run("consumer", "next", "LIFE", "all", "--no-ack")[0]
    assert 1 == server.json("consumer", "info", "LIFE", "all")["num_ack_pending"]
    code, output, errors = server.run("consumer", "next", "LIFE", "all", timeout_ms=500)
    assert (1, "", True) == (code, output, "no message of the consumer all" in errors)
    target = ("--target", "here", "--ack", "none", "--deliver", "new")
    idle = ("--ephemeral", "--inactive-threshold", "10m")
    pushed = server.json("consumer", "create", "LIFE", "pushed", *target, *idle)
    assert "here" == part(pushed, "config")["deliver_subject"]
    assert {"consumers": ["all", "pushed"]} == server.json("consumer", "ls", "LIFE", "--names")
    assert "pushed" in server.run("consumer", "ls", "LIFE")[1]
    assert 0 == server.run("consumer", "rm", "LIFE", "pushed", "--yes")[0]
    code, _, errors = server.run("consumer", "info", "LIFE", "pushed")
    assert (1, True) == (code, "consumer not found (10014)" in errors)

    assert 0 == server.run("stream", "rmm", "LIFE", "2", "--yes")[0]
    code, _, errors = server.run("stream", "get", "LIFE", "2")
    assert (1, True) == (code, "no message found (10037)" in errors)
    assert 0 != server.run("stream", "purge", "LIFE")[0]
    assert 2 == server.json("stream", "purge", "LIFE", "--keep", "1", "--yes")["purged"]
    assert {"stream": "LIFE", "deleted": True} == server.json("stream", "rm", "LIFE", "--force")
    code, _, errors = server.run("stream", "info", "LIFE")
    assert (1, True) == (code, "stream not found (10059)" in errors)


@pytest.mark.timeout(600)  # some twenty processes, one after another
def test_the_examples_run(server: Commands) -> None:
    for path, lines in EXAMPLES.items():
        if not path.startswith(("nats stream ", "nats consumer ")):
            continue
        for line in lines:
            words = words_of(line)[0]
            assert "nats" == words[0]
            code, _, errors = server.run(*words[1:])
            assert (0, line, "") == (code, line, errors)
        if path == "nats stream create":
            for _ in range(2):
                assert 0 == server.run("pub", "orders.eu.new", "17 boxes")[0]


def test_wrong_command_lines_are_refused(server: Commands) -> None:
    for words in (
        ("stream", "info", "a.b"),
        ("stream", "get", "S"),
        ("stream", "get", "S", "1", "--last-for", "a"),
        ("stream", "edit", "S"),
        ("stream", "purge", "S", "--seq", "1", "--keep", "1", "--yes"),
        ("stream", "create", "S", "--max-age", "soon"),
        ("consumer", "create", "S", "c", "--deliver", "soon"),
    ):
        assert 2 == server.run(*words)[0], words


def test_a_server_without_jetstream(tmp_path: Path) -> None:
    with jetstream_broker(tmp_path / "data", **{"kalda.nats.jetstream.enable": "false"}) as broker:
        code, _, errors = Commands(nats_port(broker), is_broker=True).run("stream", "ls")
    assert (1, True) == (code, "does not serve JetStream" in errors)
