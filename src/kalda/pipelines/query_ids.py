"""Recognises the query ids of replays and backfills in batch logs and in the ledger."""

from typing import Final

REFILL_PREFIX: Final = "refill-"
"""Begins the query id of replays and backfills."""
