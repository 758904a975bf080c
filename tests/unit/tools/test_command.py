"""Where the settings of a tool's client come from, and what becomes of errors."""

import io
from pathlib import Path

import pytest

from kalda.command.command import Tool, default_address, exit_code_of, given_properties
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.output import Form, Output
from kalda.common.config_def import ConfigError
from kalda.net.client.client_errors import BrokerConnectionError


def test_options_win_over_properties_and_these_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nclient.id=file\nretries=3\n")

    assert {
        "bootstrap.servers": "option:3",
        "client.id": "property",
        "retries": "3",
    } == given_properties("option:3", file, ("client.id=property", "bootstrap.servers=property:2"))


def test_the_address_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KALDA_BOOTSTRAP_SERVER", raising=False)
    assert {"bootstrap.servers": "127.0.0.1:9092"} == default_address()
    monkeypatch.setenv("KALDA_BOOTSTRAP_SERVER", "elsewhere:1")
    assert {"bootstrap.servers": "elsewhere:1"} == default_address()


def test_a_file_that_is_not_there_and_a_word_that_is_no_setting_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(ToolUsageError, match=r"--command-config=.*nowhere: No such file"):
        given_properties(None, tmp_path / "nowhere")
    broken = tmp_path / "broken"
    broken.write_text("a=\\u12\n")
    with pytest.raises(ToolUsageError, match=r"--command-config=.*broken: line 1 has a broken"):
        given_properties(None, broken)
    with pytest.raises(
        ToolUsageError, match="--command-property: 'retries' is not a setting: write name=value"
    ):
        given_properties(None, None, ("retries",))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ToolError("refused"), 1),
        (ToolUsageError("refused"), 2),
        (BrokerConnectionError("refused"), 1),
        (ConfigError("acks", "refused"), 2),
    ],
)
def test_errors_of_the_world_are_one_line_and_an_exit_code(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def run() -> None:
        raise error

    assert code == exit_code_of(run)
    assert "kalda: refused\n" == capsys.readouterr().err


def test_a_fault_of_the_program_keeps_its_traceback() -> None:
    def run() -> None:
        raise KeyError("fault")

    with pytest.raises(KeyError):
        exit_code_of(run)


def test_a_tools_own_file_names_the_brokers_only_where_the_command_line_does_not() -> None:
    """`kalda state push production --bootstrap-server test:1` must not go to production."""
    output = Output(Form.PLAIN, io.StringIO(), io.StringIO())
    properties = {"bootstrap.servers": "a:1"}

    assert (
        "b:2" == Tool(output, properties, is_address_default=True).at("b:2").properties["bootstrap.servers"]
    )
    assert "a:1" == Tool(output, properties).at("b:2").properties["bootstrap.servers"]
    assert "a:1" == Tool(output, properties, is_address_default=True).at(None).properties["bootstrap.servers"]
