"""The numbers of ZooKeeper's client protocol: operations, reserved request ids, error codes, create flags.

Names are ZooKeeper's own. The error codes of the data tree are in `kalda.zookeeper.errors`; this
module has the codes that only the wire uses.
"""

from enum import IntEnum
from typing import Final


class OpCode(IntEnum):
    """The operation of a request; the number is in the request's header."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE_SESSION = -11


ERROR: Final = -1
"""In a multi's response, the type of a result that is an error; also the type that ends the list."""

NOTIFICATION_XID: Final = -1
"""The request id of a watch event, which is no response."""

OK: Final = 0
SYSTEM_ERROR: Final = -1
RUNTIME_INCONSISTENCY: Final = -2
"""In a failed multi: the result of the operations after the failed one."""
MARSHALLING_ERROR: Final = -5
UNIMPLEMENTED: Final = -6
AUTH_FAILED: Final = -115
NO_WATCHER: Final = -121
RECONFIG_DISABLED: Final = -123
AUTHENTICATION_REQUIRED: Final = -124
"""ZooKeeper's SESSIONCLOSEDREQUIRESASLAUTH: only clients with certain identities are served."""
