"""DescribeProcess (key 20030): returns what a broker's process is and what it holds, for ``kalda doctor``.

Kalda's own; Apache Kafka has no such API.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Message, wire


class DescribeProcessRequest(Message, api_key=ApiKey.DESCRIBE_PROCESS, versions="0", flexible="0+"):
    """Nothing: a broker describes itself."""


class DescribeProcessResponse(Message, api_key=ApiKey.DESCRIBE_PROCESS, versions="0", flexible="0+"):
    """The process at `time_ms`, the broker's wall clock when it answered.

    `open_files` and `open_files_max` are -1 where the system does not say, and the latter where there is no
    limit.
    """

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    version: str = wire(STRING, "0+")
    is_compiled: bool = wire(BOOL, "0+")
    time_ms: int = wire(INT64, "0+", default=-1)
    open_files: int = wire(INT64, "0+", default=-1)
    open_files_max: int = wire(INT64, "0+", default=-1)
