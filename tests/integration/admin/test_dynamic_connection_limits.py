"""A limit of connections that changes while the broker runs counts for the next connection."""

import contextlib
from pathlib import Path

from kalda.common.errors import ErrorCode
from kalda.protocol.messages.api_versions import ApiVersionsRequest
from kalda.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kalda.testing import KaldaProcess
from tests.integration.admin.test_admin_wire_versions import Wire

BROKER, SET, DELETE = 4, 0, 1


def change(wire: Wire, setting: str, operation: int, value: str | None) -> None:
    config = AlterableConfig(name=setting, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="0", configs=[config])
    response = wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert isinstance(response, IncrementalAlterConfigsResponse)
    assert [ErrorCode.NONE] == [result.error_code for result in response.responses]


def is_accepted(bootstrap: str) -> bool:
    """Whether the broker answers a new connection at all."""
    wire = Wire(bootstrap)
    with contextlib.closing(wire.socket):
        try:
            wire.ask(ApiVersionsRequest(), 0)
        except (AssertionError, ConnectionError):
            return False
        return True


def test_connections_are_bounded_from_now_on_and_the_bound_outlives_a_restart(tmp_path: Path) -> None:
    with KaldaProcess(tmp_path / "data") as kalda:
        wire = Wire(kalda.bootstrap)
        assert is_accepted(kalda.bootstrap)
        change(wire, "max.connections.per.ip", SET, "1")
        assert not is_accepted(kalda.bootstrap)
        change(wire, "max.connections.per.ip", DELETE, None)
        assert is_accepted(kalda.bootstrap)

        change(wire, "max.connections.per.ip", SET, "1")
        wire.socket.close()
        kalda.stop()
        kalda.start()
        wire = Wire(kalda.bootstrap)
        assert not is_accepted(kalda.bootstrap)
        wire.socket.close()


def test_a_listener_gets_a_limit_while_the_broker_runs(tmp_path: Path) -> None:
    setting = "listener.name.plaintext.max.connections"
    with KaldaProcess(tmp_path / "data") as kalda:
        wire = Wire(kalda.bootstrap)
        change(wire, setting, SET, "1000")
        assert is_accepted(kalda.bootstrap)
        change(wire, "max.connection.creation.rate", SET, "100")
        assert is_accepted(kalda.bootstrap)
        change(wire, setting, DELETE, None)
        wire.socket.close()
