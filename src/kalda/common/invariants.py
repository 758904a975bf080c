"""Switches full checks of invariants on and off.

A cheap invariant is an ``assert`` statement and is always checked. A check that walks over a collection, or
that runs after each step of a state machine, is a method that its class calls after a change::

    if invariants.enabled:
        self.check_invariants()

Production reads one variable there and does nothing. Tests, chaos runs and `kalda.testing` switch the checks
on; ``KALDA_CHECK_INVARIANTS=0`` in the environment leaves them off there, and ``=1`` switches them on in any
process. A violation raises `AssertionError`: it is a bug of the program, never the fault of a peer or a disk.
"""

import os
from typing import Final

_VARIABLE: Final = "KALDA_CHECK_INVARIANTS"

enabled = os.environ.get(_VARIABLE) == "1"
"""Whether `check_invariants` methods run in this process; read it through the module, it can change."""


def enable_by_default() -> None:
    """Switch the checks on, here and in child processes, unless the environment says otherwise."""
    global enabled
    enabled = os.environ.setdefault(_VARIABLE, "1") == "1"
