import doctest

import pytest

from kalda.common import settings
from kalda.common.config_def import ConfigType, at_least
from kalda.common.settings import HIGH, Settings, integer, string


class SocketConfig(Settings):
    listen_backlog_size = integer(50, "Connections that may queue to be accepted.", at_least(1))
    peers = string("a,b", "The peers.", importance=HIGH).computed_as(tuple[str, ...])


class ServerConfig(SocketConfig):
    broker_rack = string(None, "The rack.")


def test_the_example_holds() -> None:
    example = {"at_least": at_least}
    assert 0 == doctest.testmod(settings, extraglobs=example).failed


def test_a_class_holds_definitions_and_an_instance_values() -> None:
    assert "listen.backlog.size" == ServerConfig.listen_backlog_size.name
    assert ConfigType.INT is ServerConfig.listen_backlog_size.type
    config = ServerConfig(broker_rack="r1")
    assert (50, "r1") == (config.listen_backlog_size, config.broker_rack)
    assert ["listen_backlog_size", "peers", "broker_rack"] == list(ServerConfig.definitions())


def test_a_part_keeps_the_values_that_it_was_made_with() -> None:
    """A component whose settings cannot change while it runs must not see them change."""
    config = ServerConfig(listen_backlog_size=7)
    part = config.part(SocketConfig)
    config.listen_backlog_size = 8
    assert 7 == part.listen_backlog_size
    assert type(part) is SocketConfig


def test_an_attribute_that_is_not_declared_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="SocketConfig declares no broker_rack"):
        SocketConfig(broker_rack="r1")
