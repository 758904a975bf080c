"""The clusters and topics of the tests of groups.

``KALDA_TEST_BOOTSTRAP=host:port`` points them at another cluster, such as Apache Kafka.
"""

import os

import pytest

from tests.integration.groups.conftest import make_topic
from tests.integration.groups.conftest import one_broker as kalda_one_broker
from tests.integration.groups.conftest import three_brokers as kalda_three_brokers

__all__ = ["kalda_one_broker", "kalda_three_brokers", "make_topic"]


@pytest.fixture(scope="session")
def one_broker(request: pytest.FixtureRequest) -> str:
    """Address of one broker with short delays of rebalances."""
    return os.environ.get("KALDA_TEST_BOOTSTRAP") or str(request.getfixturevalue("kalda_one_broker"))


@pytest.fixture(scope="session")
def three_brokers(request: pytest.FixtureRequest) -> str:
    """Addresses of three brokers with short delays of rebalances."""
    return os.environ.get("KALDA_TEST_BOOTSTRAP") or str(request.getfixturevalue("kalda_three_brokers"))
