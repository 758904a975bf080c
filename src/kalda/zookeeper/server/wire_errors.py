"""Defines errors that only clients on the wire can cause; others are in `kalda.zookeeper.errors`."""

from kalda.zookeeper.errors import ZooKeeperError
from kalda.zookeeper.protocol import op_codes


class MarshallingError(ZooKeeperError):
    """The request's record is not that of its operation."""

    code = op_codes.MARSHALLING_ERROR


class UnimplementedError(ZooKeeperError):
    """There is no such operation."""

    code = op_codes.UNIMPLEMENTED


class NoWatcherError(ZooKeeperError):
    """The connection has no such watch."""

    code = op_codes.NO_WATCHER


class ReconfigDisabledError(ZooKeeperError):
    """There is no ensemble to reconfigure."""

    code = op_codes.RECONFIG_DISABLED
