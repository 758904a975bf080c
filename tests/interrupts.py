"""Raises an exception at a chosen step of a call, as a signal handler would.

CPython runs signal handlers when a Python function begins, when a call has returned, and when a loop goes
back. A step is one of these moments in a module of Kalda.
"""

import bisect
import dis
import functools
import itertools
import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import kalda

_PACKAGE = os.path.dirname(kalda.__file__)


class InterruptionError(BaseException):
    """What the handler of a signal raises."""


def _raise() -> None:
    raise InterruptionError


def interrupted_at(step: int, call: Callable[[], object], handler: Callable[[], object] = _raise) -> bool:
    """Make the call in this thread, and interrupt it at its step of that number, from 0; return False if it
    has fewer.

    `handler` is that of the signal; by default it raises an exception.
    """
    left = step

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        moments = _moments(code)
        last = -1

        def trace_inside(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal left, last
            if event == "opcode":
                before, last = last, frame.f_lasti
                if (before, last) in moments:
                    left -= 1
                    if left < 0:
                        sys.settrace(None)
                        handler()
            return trace_inside

        return trace_inside

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except InterruptionError:
        return True
    finally:
        sys.settrace(outer)
    return left < 0


@functools.cache
def _moments(code: CodeType) -> frozenset[tuple[int, int]]:
    """Return the pairs of instructions between which a handler may run.

    An exception out of it counts as one of the first instruction. Raised before the second, it is the same
    only where both have the same ``except`` or ``with``.
    """
    instructions = list(dis.get_instructions(code))
    entries = sorted(
        (each.start, each.end, each.target)
        for each in dis._parse_exception_table(code)  # type: ignore[attr-defined]
    )
    starts = [start for start, _, _ in entries]

    def handler(offset: int) -> int:
        at = bisect.bisect_right(starts, offset) - 1
        return entries[at][2] if at >= 0 and offset < entries[at][1] else -1

    found = set()
    for one, following in itertools.pairwise(instructions):
        if one.opname.startswith("JUMP_BACKWARD"):
            next_offset = int(one.argval)
        elif one.opname == "RESUME" or one.opname.startswith("CALL"):
            next_offset = following.offset
        else:
            continue
        if handler(one.offset) == handler(next_offset):
            found.add((one.offset, next_offset))
    return frozenset(found)
