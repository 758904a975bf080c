"""Streams of records as server-sent events and over WebSockets."""
