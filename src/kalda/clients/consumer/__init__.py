"""Implements the consumer: subscriptions, fetching, positions, group membership and commits."""
