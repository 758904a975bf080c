"""The vocabulary of faults: what goes wrong in a cluster, when, and in which requests.

A `FaultPlan` is a list of faults of requests (`RequestFault`), brokers (`BrokerFault`) and the links between
them (`LinkFault`). It is written as text, as a mapping, in YAML or with Python objects. The plan does nothing
by itself: `kalda.faults.state.FaultState` decides for each request which fault applies, and what runs the
brokers, such as `kalda.testing.Cluster`, carries the faults out. The package has no clock and does no I/O.

Example:
    >>> str(FaultPlan.parse("produce:NOT_LEADER*2; broker:kill@2"))
    'produce:NOT_LEADER_OR_FOLLOWER*2; broker:kill@2'
"""

from kalda.common.api_keys import ApiKey
from kalda.faults.model import (
    BrokerEffect,
    BrokerFault,
    Condition,
    Fault,
    FaultError,
    LinkEffect,
    LinkFault,
    RequestEffect,
    RequestFault,
)
from kalda.faults.plan import FaultPlan

__all__ = [
    "ApiKey",
    "BrokerEffect",
    "BrokerFault",
    "Condition",
    "Fault",
    "FaultError",
    "FaultPlan",
    "LinkEffect",
    "LinkFault",
    "RequestEffect",
    "RequestFault",
]
