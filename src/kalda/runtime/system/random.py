"""The operating system's randomness: the port of `kalda.runtime.random`."""

from random import SystemRandom
from typing import Final

from kalda.runtime.random import Random

SYSTEM_RANDOM: Final[Random] = SystemRandom()
"""Has no state, so one serves every caller, threads and child processes included."""
