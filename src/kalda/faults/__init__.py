"""The vocabulary of faults: what goes wrong in a cluster, when, and for whom.

A `FaultPlan` is a list of faults of requests (`RequestFault`), brokers (`BrokerFault`) and the links between
them (`LinkFault`). It is written as text, as a mapping, in YAML or with Python objects. The plan does nothing
by itself: `FaultState` decides for each request which fault applies, and whoever runs the brokers, such as
`kalda.testing.Cluster`, carries the faults out. The package has no clock and does no I/O.

Example:
    >>> str(FaultPlan.parse("produce:NOT_LEADER*2; broker:kill@2"))
    'produce:NOT_LEADER_OR_FOLLOWER*2; broker:kill@2'
"""

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
from kalda.faults.state import FaultState, RequestFacts

__all__ = [
    "BrokerEffect",
    "BrokerFault",
    "Condition",
    "Fault",
    "FaultError",
    "FaultPlan",
    "FaultState",
    "LinkEffect",
    "LinkFault",
    "RequestEffect",
    "RequestFacts",
    "RequestFault",
]
