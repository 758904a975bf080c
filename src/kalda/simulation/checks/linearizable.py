"""Checks that a history of one znode is linearizable, by Wing and Gong's search: `is_linearizable`.

A history is linearizable if each operation can be given one moment between its call and its response, so that
the results are those of the operations done one after the other in the order of these moments. An operation
without a known outcome may have its moment at any time after its call, or never.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

ANY: Final = -1
"""As the expected version of a write: it is unconditional."""

Znode: TypeAlias = tuple[bytes, int] | None
"""Data and version, or None where there is no znode."""


class Kind(Enum):
    """What an operation does."""

    READ = "read"
    CREATE = "create"
    SET = "set"
    DELETE = "delete"


class Refusal(Enum):
    """Why an operation changed nothing."""

    NO_NODE = "no node"
    EXISTS = "exists"
    BAD_VERSION = "bad version"


@dataclass(frozen=True, slots=True)
class Call:
    """One operation of a client on the znode.

    `data` is what is written; `version` what a write expects, or `ANY`. `result` of a read is the znode, of a
    create or a set the version that it made. It is a `Refusal` where nothing was changed, and None where the
    outcome is unknown: then `returned` is infinite.
    """

    kind: Kind
    called: float
    returned: float = math.inf
    data: bytes = b""
    version: int = ANY
    result: Znode | int | Refusal = None

    @property
    def is_known(self) -> bool:
        """Whether there was a response."""
        return self.returned < math.inf


class UndecidedError(Exception):
    """The search took more than its bound of steps."""


def apply(znode: Znode, call: Call) -> tuple[Znode, Znode | int | Refusal]:
    """Return the znode after a call, and the result that the call must have had."""
    match call.kind:
        case Kind.READ:
            return znode, Refusal.NO_NODE if znode is None else znode
        case Kind.CREATE:
            return (znode, Refusal.EXISTS) if znode is not None else ((call.data, 0), 0)
        case Kind.SET | Kind.DELETE:
            if znode is None:
                return None, Refusal.NO_NODE
            if call.version not in (ANY, znode[1]):
                return znode, Refusal.BAD_VERSION
            if call.kind is Kind.DELETE:
                return None, 0
            return (call.data, znode[1] + 1), znode[1] + 1


def is_linearizable(history: Sequence[Call], initial: Znode = None, steps_max: int = 200_000) -> bool:
    """Return whether the calls on one znode could have happened one after the other.

    Raises:
        UndecidedError: the search does not end within `steps_max` steps.
    """
    # A read without an outcome says nothing.
    calls = sorted(
        (call for call in history if call.is_known or call.kind is not Kind.READ), key=lambda c: c.called
    )
    known = sum(1 << index for index, call in enumerate(calls) if call.is_known)
    seen: set[tuple[int, Znode]] = set()
    stack: list[tuple[int, Znode]] = [(0, initial)]
    while stack:
        done, znode = stack.pop()
        if done & known == known:
            return True
        if (done, znode) in seen:
            continue
        seen.add((done, znode))
        if len(seen) > steps_max:
            raise UndecidedError(f"{len(calls)} calls need more than {steps_max} steps")
        stack.extend(_next(calls, done, znode))
    return False


def _next(calls: Sequence[Call], done: int, znode: Znode) -> list[tuple[int, Znode]]:
    """Return the calls that may come next: each that no other call must precede."""
    followers: list[tuple[int, Znode]] = []
    first_return = math.inf
    for index, call in enumerate(calls):
        if done >> index & 1:
            continue
        if call.called > first_return:
            break
        first_return = min(first_return, call.returned)
    for index, call in enumerate(calls):
        if call.called > first_return:
            break
        if done >> index & 1:
            continue
        after, result = apply(znode, call)
        if call.is_known:
            if result == call.result:
                followers.append((done | 1 << index, after))
        elif after != znode:
            # Without an effect it need not be placed at all.
            followers.append((done | 1 << index, after))
    # The calls that returned first are tried first: they are last on the stack.
    followers.sort(key=lambda follower: -calls[(follower[0] ^ done).bit_length() - 1].returned)
    return followers
