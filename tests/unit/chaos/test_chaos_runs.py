"""The long runs by name."""

from pathlib import Path

import pytest

from tests.chaos.__main__ import RUNS, main, selected

PROGRAMS = Path(__file__).parents[2] / "chaos"

BY_HAND = {
    *("connector_reader", "copier", "kalda_copier", "spark_sink_driver", "table_driver"),
    *("celery_tasks", "share_worker", "taskiq_tasks", "worker_tasks"),
    *("decoder_fuzz", "why_incidents"),
}
"""The programs that runs start, and the last two with options of their own."""


def test_every_program_of_the_package_is_a_run() -> None:
    found = {
        path.stem
        for path in PROGRAMS.glob("*.py")
        if "__main__" in path.read_text() and path.stem != "__main__"
    }
    assert found - BY_HAND == {run.module for run in RUNS}


def test_names_are_whole_or_the_first_words_of_several() -> None:
    assert ["mirror"] == [run.name for run in selected(["mirror"])]
    assert ["connector-zookeeper", "connector-kafka", "connector-migrate"] == [
        run.name for run in selected(["connector", "connector-kafka"])
    ]
    assert list(RUNS) == selected([])
    with pytest.raises(ValueError, match="no run is named conn"):
        selected(["conn"])


def test_a_run_gets_the_options_that_it_takes() -> None:
    given: dict[str, str | bool | None] = dict.fromkeys(
        ("seed", "client", "protocol", "records", "minutes", "logins", "etcd")
    )
    given |= {"rounds": "3", "real_zookeeper": True}
    cluster, dead_letters = selected(["cluster", "dead-letters"])
    assert ["tests.chaos.cluster_rounds", "--rounds", "3", "--real-zookeeper"] == cluster.command(given)[2:]
    assert ["tests.chaos.dead_letters"] == dead_letters.command(given)[2:]


def test_the_list_names_each_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["kill", "--list"])
    assert "kill  Kill a broker again and again" in capsys.readouterr().out
