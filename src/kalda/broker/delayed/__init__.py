"""The delayed operations of the data path: a fetch that waits for bytes, a produce that waits for replicas.

Each sits in a purgatory (`kalda.broker.purgatory`) under the partitions it waits for, and is completed
exactly once: by an event on one of them, or by time.
"""
