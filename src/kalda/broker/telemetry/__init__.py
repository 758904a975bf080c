"""Client metrics (KIP-714): which clients are to push which metrics, and the metrics that they pushed."""
