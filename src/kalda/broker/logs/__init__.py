"""Runs the background work on logs: retention, flushes, checkpoints and the log cleaner.

The work itself is in `kalda.storage`. The package uses `context` and `replicas`.
"""
