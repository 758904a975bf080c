"""Names in addresses and commands: nothing that a name contains changes what they mean."""

import doctest
import shlex
import subprocess

import pytest

from kalda.clients.admin.configs import ConfigEntry, ConfigSource
from kalda.http.console import command_lines, record_views, texts, visits
from kalda.http.console.config_views import is_secret
from kalda.http.console.visits import local_path, path_of

NAMES = [
    "flights",
    "a b",
    "it's",
    'say "hi"',
    "$(reboot)",
    "`x`",
    "a;b",
    "a\nb",
    "é",
    "-rf",
    "a\\b",
    "*",
    "~",
    "!x",
]


@pytest.mark.parametrize("module", [command_lines, record_views, texts, visits])
def test_examples_in_docstrings_hold(module: object) -> None:
    assert 0 == doctest.testmod(module).failed  # type: ignore[arg-type]  # modules


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_reads_a_word_back(name: str) -> None:
    """A command that is copied from a page must not do anything that a name says."""
    read = subprocess.run(
        ["bash", "-c", f"printf %s {command_lines.quoted(name)}" if name != "-rf" else "printf -- -rf"],
        capture_output=True,
        check=True,
    ).stdout

    assert name == read.decode()


@pytest.mark.parametrize("name", [each for each in NAMES if "\n" not in each])
def test_an_option_keeps_its_value(name: str) -> None:
    words = shlex.split(
        command_lines.line("configs", "describe", options={"topic": name, "all": True, "x": None})
    )

    assert ["kalda", "configs", "describe"] == words[:3]
    assert words[3:] in (["--topic", name, "--all"], [f"--topic={name}", "--all"])


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/console/topics?q=a", "/topics?q=a"),
        ("/console/", "/"),
        ("https://evil.example/", "/"),
        ("//evil.example/console/", "/"),
        ("/console//evil.example", "/"),
        ("/console/\\evil.example", "/"),
        ("/console/../etc", "/"),
        ("/console/topics\r\nSet-Cookie: a=b", "/"),
        ("javascript:alert(1)", "/"),
        ("/other", "/"),
        ("", "/"),
    ],
)
def test_the_way_back_leads_into_the_console_only(text: str, path: str) -> None:
    assert path == local_path(text)


def test_a_name_is_one_segment_of_a_path() -> None:
    assert "/topics/..%2F..%2Fetc" == path_of("topics", "../../etc")
    assert "/groups/a%3Fb%23c%20d" == path_of("groups", "a?b#c d")


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("retention.ms", "1", False),
        ("ssl.keystore.password", "x", True),
        ("listener.name.a.scram-sha-512.sasl.jaas.config", "x", True),
        ("ssl.keystore.key", "x", True),
        ("my.plugin.options", 'user=a password="b"', True),
        ("my.pem", "-----BEGIN PRIVATE KEY-----", True),
        ("key.converter", "x", False),
        ("min.insync.replicas", None, False),
    ],
)
def test_secrets_are_known_by_name_and_by_value(name: str, value: str | None, secret: bool) -> None:
    assert secret == is_secret(ConfigEntry(name, value, ConfigSource.DEFAULT_CONFIG))


def test_what_the_broker_says_is_secret_is() -> None:
    assert is_secret(ConfigEntry("x", None, ConfigSource.DEFAULT_CONFIG, is_sensitive=True))


def test_json_with_half_of_a_surrogate_pair_is_shown_as_it_is() -> None:
    """A record with it had no page: its text was decoded, and no page can carry it."""
    shown, form = texts.bytes_text(b'{"a":"\\ud800"}')
    assert ('{"a":"\\ud800"}', "text") == (shown, form)
    shown.encode()
    assert ('{\n  "a": "\U00010000"\n}', "json") == texts.bytes_text(b'{"a":"\\ud800\\udc00"}')
