"""Checks the invariants of a simulated cluster, while it runs and at its end."""
