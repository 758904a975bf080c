"""Kalda: a streaming platform that speaks Apache Kafka's wire protocol."""

from typing import Final

__version__: Final = "0.1.0"
