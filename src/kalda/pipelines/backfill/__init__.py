"""Processes offsets that a pipeline has not, or a range again: replays and backfills."""
