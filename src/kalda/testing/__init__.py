"""What tests of applications need: a real broker that is up in a moment and gone after the test."""

from kalda.testing.process import KaldaProcess, KaldaProcessError

__all__ = ["KaldaProcess", "KaldaProcessError"]
