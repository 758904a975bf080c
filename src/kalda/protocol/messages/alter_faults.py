"""AlterFaults (key 20010): replaces or describes the plan of faults of a broker.

Kalda's own; Apache Kafka has no such API. A broker offers it only with ``kalda.faults.api.enable``.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT16, INT64, STRING, Message, array, wire


class AlterFaultsRequest(Message, api_key=ApiKey.ALTER_FAULTS, versions="0", flexible="0+"):
    """The plan in its short form; an empty one ends the plan in force, and null leaves it."""

    plan: str | None = wire(STRING, "0+", nullable="0+", default=None)


class AlterFaultsResponse(Message, api_key=ApiKey.ALTER_FAULTS, versions="0", flexible="0+"):
    """The plan in force after the request.

    `applied` is to how many requests each fault of requests applied, in the order of the plan.
    """

    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    plan: str = wire(STRING, "0+")
    applied: list[int] = wire(array(INT64), "0+")
