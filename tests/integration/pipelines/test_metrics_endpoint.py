"""The metrics of `kalda pipeline run` on a port of this machine."""

import socket
import threading

import pytest

from kalda.common.config_def import ConfigError
from kalda.pipelines.engine.metrics import MetricsEndpoint


def test_a_port_that_is_taken_is_one_line_and_leaves_nothing_behind() -> None:
    """`run` prints the message; the thread of the endpoint has ended."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with (
            pytest.raises(
                ConfigError, match=f"^--metrics-port={port} cannot be used: Address already in use"
            ),
            MetricsEndpoint(list, port),
        ):
            pass
    assert not [each for each in threading.enumerate() if each.name == "pipeline-metrics"]
