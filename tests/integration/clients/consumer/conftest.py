"""The clusters and topics of the tests of groups."""

from tests.integration.groups.conftest import make_topic, one_broker, three_brokers

__all__ = ["make_topic", "one_broker", "three_brokers"]
