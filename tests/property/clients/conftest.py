"""The implementations of the record decoder, for the tests that run with each."""

from tests.record_implementations import record_implementation

__all__ = ["record_implementation"]
