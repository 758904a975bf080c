"""Judges the health of a cluster from its brokers' responses, for tools and console. Pure functions."""
