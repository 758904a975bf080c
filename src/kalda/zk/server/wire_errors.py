"""Errors that only clients over the wire can meet; the tree's own are in `coordination.errors`."""

from kalda.coordination.errors import CoordinationError
from kalda.zk.proto import op_codes


class MarshallingError(CoordinationError):
    """The request's record is not what its operation says."""

    code = op_codes.MARSHALLING_ERROR


class UnimplementedError(CoordinationError):
    """There is no such operation."""

    code = op_codes.UNIMPLEMENTED


class NoWatcherError(CoordinationError):
    """The connection has no such watch."""

    code = op_codes.NO_WATCHER


class ReconfigDisabledError(CoordinationError):
    """There is no ensemble to reconfigure."""

    code = op_codes.RECONFIG_DISABLED
