"""Copies topics from one cluster to another, exactly once; it needs Arrow and no Spark."""
