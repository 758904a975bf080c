"""DescribeProcess (key 20030), version 0: returns the version, the clock and the descriptors of this broker.

Kalda's own.
"""

from functools import partial
from typing import Final

from kalda import __version__
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import DESCRIBE_CLUSTER
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.fast import implementation as of_requests
from kalda.protocol.messages.describe_process import DescribeProcessRequest, DescribeProcessResponse
from kalda.records import implementation as of_records
from kalda.runtime.clock import Clock
from kalda.runtime.system.proc import open_descriptor_count
from kalda.storage.descriptors import descriptors_max

_UNKNOWN: Final = -1


def handle(clock: Clock, _: DescribeProcessRequest, __: RequestContext) -> DescribeProcessResponse:
    """Describe the process as it is now."""
    return DescribeProcessResponse(
        version=__version__,
        is_compiled=of_records.is_compiled() and of_requests.is_compiled,
        time_ms=clock.time_ms(),
        open_files=_or_unknown(open_descriptor_count()),
        open_files_max=_or_unknown(descriptors_max()),
    )


def _or_unknown(count: int | None) -> int:
    return _UNKNOWN if count is None else count


def error_response(_: DescribeProcessRequest, code: ErrorCode) -> DescribeProcessResponse:
    """Return a response with the error."""
    return DescribeProcessResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.DESCRIBE_PROCESS,
    versions=(0, 0),
    build=lambda services: partial(handle, services.clock),
    error_response=error_response,
    access=DESCRIBE_CLUSTER,
)
