"""kazoo's tests that do not apply to our server, each with the reason. The names are pytest's."""

EXCEPTION_MARK = "not for this server: "

_RACES_WITH_START = (
    "KazooClient.start() raises its time-out instead of AuthFailedError where the login is refused before "
    "the waiting thread runs; see test_wire_authentication.py"
)

EXCEPTIONS: dict[str, str] = {
    "test_client.py::TestClient::test_update_host_list": "needs an ensemble: it stops one of three servers",
    "test_client.py::TestReconfig::test_add_remove_observer": "needs an ensemble to reconfigure",
    "test_client.py::TestReconfig::test_bad_input": "needs an ensemble to reconfigure",
    "test_client.py::TestReconfig::test_no_super_auth": "needs an ensemble to reconfigure",
    "test_client.py::TestSSLClient::test_create": "see test_wire_authentication.py",
    "test_connection.py::TestReadOnlyMode::test_read_only": (
        "needs an ensemble: a server becomes read-only when it loses the others"
    ),
    "test_gevent_handler.py::TestGeventClient::test_update_host_list": "needs an ensemble, as above",
    "test_sasl.py::TestLegacySASLDigestAuthentication::test_invalid_sasl_auth": _RACES_WITH_START,
    "test_sasl.py::TestSASLDigestAuthentication::test_invalid_sasl_auth": _RACES_WITH_START,
}

UNAVAILABLE: dict[str, str] = {
    "test_build.py": "checks the build of kazoo's own continuous integration",
    "test_eventlet_handler.py": "eventlet is not installed: it is about the client's threads, not the server",
    "test_gevent_handler.py": "it is about the client's threads, not the server",
    "test_sasl.py": "one of its tests needs a Kerberos server",
    "test_utils.py": "one of its tests needs eventlet",
}
"""Modules some of whose tests skip themselves, and why that is no loss here."""
