"""The implementations of record columns, for the tests that run with each."""

from tests.record_implementations import numpy_records, record_implementation

__all__ = ["numpy_records", "record_implementation"]
