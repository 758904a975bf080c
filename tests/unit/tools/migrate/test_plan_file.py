"""The plan of a roll: what `kalda migrate plan` writes is what `run` reads, and mistakes are named."""

from pathlib import Path

import pytest
import yaml

from kalda.command.errors import ToolUsageError
from kalda.tools.migrate.plan_file import Templates, parse_plan, read_plan, write_plan
from kalda.tools.migrate.unit_file import unit_text
from kalda.tools.migrate.walk import Accepted, Software

TEMPLATES = Templates(
    {
        "stop_kafka": "systemctl stop kafka",
        "start_kalda": "systemctl start kalda@{id}",
        "stop_kalda": "systemctl stop kalda@{id}",
        "start_kafka": "systemctl start kafka",
    }
)
TEXT = write_plan("c-1", "h1:9092,h2:9092", {1: "h1", 2: "h2"}, TEMPLATES)


def test_a_written_plan_is_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.yml"
    path.write_text(TEXT)
    file = read_plan(path)
    assert "h1:9092,h2:9092" == file.bootstrap_servers
    assert "c-1" == file.plan.cluster_id
    assert file.plan.controller_last
    assert [1, 2] == [each.broker_id for each in file.plan.brokers]
    assert "systemctl start kalda@2" == file.plan.broker(2).start[Software.KALDA]
    assert "systemctl stop kafka" == file.plan.broker(1).stop[Software.KAFKA]


def test_commands_reach_other_hosts_as_one_quoted_word() -> None:
    templates = Templates(
        {"stop_kafka": "kill $(cat '/run/kafka {id}.pid')"}, via="ssh kafka@{host} {command}"
    )
    command = templates.filled("stop_kafka", 7, "h7")
    assert """ssh kafka@h7 'kill $(cat '"'"'/run/kafka 7.pid'"'"')'""" == command


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"order": "random"}, "order=random is not allowed: it takes controller-last or as-written"),
        ({"wait_seconds": 0}, "wait_seconds=0 is not allowed"),
        ({"accept": ["all"]}, "accept=all is not allowed: it takes a list of single-replicas"),
        ({"accept": "single-replicas"}, "accept=single-replicas is not allowed"),
        ({"brokers": []}, "brokers must be a list"),
        ({"brokers": [{"id": 1}]}, "broker 1 of the list: stop_kafka is missing"),
        ({"pause": 3}, "the plan: pause is unknown"),
    ],
)
def test_a_mistake_is_named(change: dict[str, object], message: str) -> None:
    document = yaml.safe_load(TEXT) | change
    with pytest.raises(ToolUsageError) as raised:
        parse_plan(document)
    assert message in str(raised.value)


def test_an_id_may_come_once() -> None:
    document = yaml.safe_load(TEXT)
    document["brokers"][1]["id"] = 1
    with pytest.raises(ToolUsageError, match="an id comes twice, in 1, 1"):
        parse_plan(document)


def test_pauses_are_accepted_by_name() -> None:
    document = yaml.safe_load(TEXT) | {"accept": ["single-replicas"]}
    assert frozenset({Accepted.SINGLE_REPLICAS}) == parse_plan(document).plan.accept


@pytest.mark.parametrize("text", ["- 1\n", "a: [\n", "just words"])
def test_a_file_that_is_no_plan_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.yml"
    path.write_text(text)
    with pytest.raises(ToolUsageError, match="plan"):
        read_plan(path)


def test_the_unit_of_kalda_excludes_that_of_kafka() -> None:
    text = unit_text("/etc/kafka/server.properties", "kafka.service")
    assert "Conflicts=kafka.service" in text
    assert "--config /etc/kafka/server.properties" in text
