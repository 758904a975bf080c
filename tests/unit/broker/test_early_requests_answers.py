"""What comes before the broker knows the cluster waits, in order, and is answered when it does."""

import struct

from kalda.broker.requests.early_requests import EarlyRequests
from kalda.common.api_keys import ApiKey
from kalda.net.connection import Connection
from tests.unit.net.fakes import Harness, framed


def request(key: ApiKey, text: bytes) -> bytes:
    return struct.pack(">h", key) + text


def echo(connection: Connection, frame: memoryview) -> None:
    connection.send(framed(bytes(frame)))


def test_requests_wait_and_are_answered_at_once_when_the_broker_opens() -> None:
    """A follower whose fetch was kept and never answered waited for its time-out: 30 seconds."""
    early = EarlyRequests(echo, {ApiKey.API_VERSIONS})
    harness = Harness(early.on_frame)
    versions, fetch = request(ApiKey.API_VERSIONS, b"v"), request(ApiKey.FETCH, b"f")
    harness.receive(framed(versions) + framed(fetch))
    assert framed(versions) == harness.take_sent()
    harness.receive(framed(versions))
    assert 2 == len(early)
    early.open()
    assert framed(fetch) + framed(versions) == harness.take_sent()
    harness.receive(framed(fetch))
    assert framed(fetch) == harness.take_sent()


def test_kept_request_that_cannot_be_handled_ends_only_its_own_connection() -> None:
    def fail_on_fetch(connection: Connection, frame: memoryview) -> None:
        if bytes(frame) == request(ApiKey.FETCH, b"bad"):
            raise RuntimeError("cannot handle this")
        echo(connection, frame)

    early = EarlyRequests(fail_on_fetch, {ApiKey.API_VERSIONS})
    bad, good = Harness(early.on_frame), Harness(early.on_frame)
    bad.receive(framed(request(ApiKey.FETCH, b"bad")))
    good.receive(framed(request(ApiKey.FETCH, b"good")))
    early.open()
    assert ["internal error"] == bad.owner.closed
    assert framed(request(ApiKey.FETCH, b"good")) == good.take_sent()
