"""Reads ranges of partitions without a consumer: no group, no subscription. Spark's source uses it."""
