"""Processes offsets that a pipeline has not processed, or a range once more: backfills and replays."""
