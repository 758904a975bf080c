"""Defines the port through which the controller sends requests to brokers."""

from typing import Protocol

from kalda.cluster.schema import BrokerInfo
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import BrokerRequest


class BrokerChannel(Protocol):
    """Carries the controller's requests to brokers, its own included."""

    async def send(self, broker: BrokerInfo, request: BrokerRequest) -> dict[TopicPartition, ErrorCode]:
        """Deliver one request and return the broker's error code for each partition.

        `broker` is the receiver's registration: its endpoints, and the broker epoch that the request names.
        An empty mapping means that every partition succeeded. The caller sends one request at a time to a
        broker, in order, and repeats a failed one until the broker is gone; so a request may arrive twice.

        Raises:
            ConnectionError: the broker could not be reached, or did not respond.
        """
        ...
