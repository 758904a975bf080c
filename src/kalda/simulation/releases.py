"""Lists the releases of Apache Kafka that simulations model."""

from typing import Final

from kalda.protocol.releases import is_at_least

RELEASES: Final = ("2.7", "3.9")
"""Without topic ids, and with them."""


def knows_topic_ids(release: str) -> bool:
    """Return whether the brokers of a release know topic ids (KIP-516)."""
    return is_at_least(release, "2.8")
