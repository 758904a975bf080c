"""`kalda client-metrics` takes the options of Kafka's tool and prints what it prints (KIP-714)."""

import pytest

from tests.integration.tools.commands import Commands


def test_a_subscription_from_the_first_setting_to_the_deletion(kalda: Commands) -> None:
    altered = kalda.run(
        *("client-metrics", "--alter", "--name", "mine", "--interval", "1000"),
        *("--metrics", "org.apache.kafka.producer.,org.apache.kafka.consumer.", "--match", "client_id=a.*"),
    )
    assert (0, "Altered client metrics config for mine.\n") == (altered.code, altered.stdout)
    assert "mine" in kalda.run("client-metrics", "--list").stdout.splitlines()
    expected = [
        "Client metrics configs for mine are:",
        "  interval.ms=1000",
        "  match=client_id=a.*",
        "  metrics=org.apache.kafka.producer.,org.apache.kafka.consumer.",
    ]
    assert expected == kalda.run("client-metrics", "--describe", "--name", "mine").stdout.splitlines()
    assert "Client metrics configs for mine are:" in kalda.run("client-metrics", "--describe").stdout

    assert 0 == kalda.run("client-metrics", "--alter", "--name", "mine", "--match", "").code
    described = kalda.run("client-metrics", "--describe", "--name", "mine", "--json").json
    settings = {"interval.ms": "1000", "metrics": "org.apache.kafka.producer.,org.apache.kafka.consumer."}
    assert [{"name": "mine", "settings": settings}] == described["client_metrics"]

    deleted = kalda.run("client-metrics", "--delete", "--name", "mine")
    assert (0, "Deleted client metrics config for mine.\n") == (deleted.code, deleted.stdout)
    assert "mine" not in kalda.run("client-metrics", "--list").stdout.splitlines()
    assert 0 == kalda.run("client-metrics", "--delete", "--name", "mine").code


def test_a_name_can_be_made_up(kalda: Commands) -> None:
    made = kalda.run("client-metrics", "--alter", "--generate-name", "--metrics", "x.", "--json").json["name"]
    assert made in kalda.run("client-metrics", "--list", "--json").json["client_metrics"]
    kalda.run("client-metrics", "--delete", "--name", made)


def test_what_the_broker_refuses_is_a_failure(kalda: Commands) -> None:
    done = kalda.run("client-metrics", "--alter", "--name", "mine", "--interval", "5")
    assert 1 == done.code
    assert "interval must be between 100 and 3600000" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "exactly one action"),
        (["--list", "--describe"], "exactly one action"),
        (["--alter", "--metrics", "x"], "One of --name or --generate-name"),
        (["--alter", "--name", "a", "--generate-name"], "One of --name or --generate-name"),
        (["--alter", "--name", "a"], "nothing to alter"),
        (["--delete"], "must be specified with --delete"),
        (["--list", "--name", "a"], '"list" can\'t be used with option "name"'),
        (["--describe", "--interval", "100"], '"describe" can\'t be used with option "interval"'),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    kalda: Commands, arguments: list[str], message: str
) -> None:
    done = kalda.run("client-metrics", *arguments)
    assert 2 == done.code
    assert message in done.stderr
