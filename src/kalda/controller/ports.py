"""What the controller's driver is given by the broker that runs it."""

from typing import Protocol

from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import BrokerRequest
from kalda.zk.client.schema import BrokerInfo


class BrokerChannel(Protocol):
    """Carries the controller's requests to brokers, its own included."""

    async def send(self, broker: BrokerInfo, request: BrokerRequest) -> dict[TopicPartition, ErrorCode]:
        """Deliver one request and return what the broker answered for each partition.

        `broker` is the receiver as it registered: its endpoints, and the broker epoch that the request is
        to name. An empty mapping says that all went well. The driver calls this for one broker at a time,
        in order, and calls it again after a failure until the broker is gone; so requests may arrive twice.

        Raises:
            ConnectionError: the broker could not be reached, or did not answer.
        """
        ...
