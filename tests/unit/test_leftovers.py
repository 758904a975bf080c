"""What the guard counts as left behind by a test."""

import socket
import sys
from types import SimpleNamespace

import pytest

from tests import leftovers


def test_a_connection_to_sparks_jvm_is_of_no_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """py4j opens one when an object of an earlier test is collected."""
    monkeypatch.setattr(leftovers, "SECONDS_MAX", 0.0)
    before = leftovers.open_sockets().keys()
    with socket.create_server(("127.0.0.1", 0)) as server:
        known = before | leftovers.open_sockets().keys()
        address, port = server.getsockname()
        with socket.create_connection((address, port)):
            (left,) = leftovers.sockets_left(known)
            assert f"to addr(ip='{address}', port={port})" in left
            parameters = SimpleNamespace(address=address, port=port)
            context = SimpleNamespace(_gateway=SimpleNamespace(gateway_parameters=parameters))
            monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(SparkContext=context))
            assert [] == leftovers.sockets_left(known)
