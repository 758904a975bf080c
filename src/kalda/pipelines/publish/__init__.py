"""Publishes a table in a topic: its rows first, then every change, exactly once."""
