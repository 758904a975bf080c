"""Webhooks: records of a topic are sent to a URL, signed and retried, until the receiver takes them."""
