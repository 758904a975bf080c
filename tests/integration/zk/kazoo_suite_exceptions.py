"""kazoo's tests that do not apply to our server, each with the reason. The names are pytest's."""

EXCEPTION_MARK = "not for this server: "

EXCEPTIONS: dict[str, str] = {
    "test_client.py::TestClient::test_update_host_list": "needs an ensemble: it stops one of three servers",
    "test_client.py::TestReconfig::test_add_remove_observer": "needs an ensemble to reconfigure",
    "test_client.py::TestReconfig::test_bad_input": "needs an ensemble to reconfigure",
    "test_client.py::TestReconfig::test_no_super_auth": "needs an ensemble to reconfigure",
    "test_client.py::TestSSLClient::test_create": "see test_wire_authentication.py",
    "test_connection.py::TestReadOnlyMode::test_read_only": (
        "needs an ensemble: a server becomes read-only when it loses the others"
    ),
}

UNAVAILABLE: dict[str, str] = {
    "test_build.py": "checks the build of kazoo's own continuous integration",
    "test_eventlet_handler.py": "eventlet is not installed: it is about the client's threads, not the server",
    "test_gevent_handler.py": "gevent is not installed: it is about the client's threads, not the server",
    "test_sasl.py": "one of its tests needs a Kerberos server",
    "test_utils.py": "one of its tests needs eventlet",
}
"""Modules some of whose tests skip themselves, and why that is no loss here."""
