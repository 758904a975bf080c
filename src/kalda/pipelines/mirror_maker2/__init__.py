"""Runs the replication flows of a file of MirrorMaker 2; it needs Arrow and no Spark."""
