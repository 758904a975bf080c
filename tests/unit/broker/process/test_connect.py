"""A broker that cannot get a session says which setting is at fault, once."""

import pytest

from kalda.broker.process.broker import connect
from kalda.broker.process.errors import ProcessError
from kalda.settings import BrokerConfig


@pytest.mark.parametrize(
    ("hosts", "reason"),
    [
        ("", "names no server"),
        ("host:port", "is not host:port"),
        ("127.0.0.1:1/a//b", "has no valid chroot: path '/a//b' has an empty name"),
        ("127.0.0.1:1/../b", "has no valid chroot: path '/../b' has a relative name"),
    ],
)
async def test_malformed_address_is_told_as_such(hosts: str, reason: str) -> None:
    config = BrokerConfig.from_properties({"broker.id": "1", "zookeeper.connect": hosts})

    with pytest.raises(ProcessError, match=reason) as raised:
        await connect(config)

    assert 1 == str(raised.value).count("`zookeeper.connect`")
    assert "within" not in str(raised.value)
