"""Implements the producer: records become batches, batches become Produce requests, responses complete
futures."""
