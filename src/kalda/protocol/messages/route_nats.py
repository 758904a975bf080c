"""RouteNats (key 20040): messages of NATS for another broker, and what the clients here subscribe to.

Live messages go to the clients there. Requests go to its JetStream, for a stream that it leads, and the
answer comes back as a message of another kind.

Kalda's own; Apache Kafka has no such API. Brokers with listeners of NATS offer it to other brokers of Kalda.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, BYTES, INT8, INT16, INT32, INT64, STRING, Message, Struct, array, wire


class NatsInterest(Struct):
    """A pattern of subjects that clients begin or end to subscribe to, in a queue group (or empty)."""

    subject: bytes = wire(BYTES, "0+")
    queue: bytes = wire(BYTES, "0+")
    is_on: bool = wire(BOOL, "0+")


class NatsMessage(Struct):
    """A message, and the queue groups of which a member gets it. `reply` and `headers` may be empty.

    `route` is the subject whose subscribers get it; empty if it is the message's own. `kind` is 0 for a live
    message, 1 for a request to JetStream, and 2 for its answer. A request names the stream, if its subject
    does not, and the principal and address of the client whose rights count.
    """

    subject: bytes = wire(BYTES, "0+")
    reply: bytes = wire(BYTES, "0+")
    headers: bytes = wire(BYTES, "0+")
    payload: bytes = wire(BYTES, "0+")
    queues: list[bytes] = wire(array(BYTES), "0+")
    route: bytes = wire(BYTES, "0+", tag=0)
    kind: int = wire(INT8, "0+", tag=1)
    stream: str = wire(STRING, "0+", tag=2)
    principal: str = wire(STRING, "0+", tag=3)
    host: str = wire(STRING, "0+", tag=4)


class RouteNatsRequest(Message, api_key=ApiKey.ROUTE_NATS, versions="0", flexible="0+"):
    """The next part of what a broker sends to another one.

    `number` counts the requests of a session from 0, which the sender begins again when the receiver does not
    know it. The interest counts before the messages.
    """

    broker_id: int = wire(INT32, "0+")
    session: int = wire(INT64, "0+")
    number: int = wire(INT64, "0+")
    interest: list[NatsInterest] = wire(array(NatsInterest), "0+")
    messages: list[NatsMessage] = wire(array(NatsMessage), "0+")


class RouteNatsResponse(Message, api_key=ApiKey.ROUTE_NATS, versions="0", flexible="0+"):
    """INVALID_FETCH_SESSION_EPOCH if the receiver does not know the session; it took nothing then."""

    error_code: int = wire(INT16, "0+")
