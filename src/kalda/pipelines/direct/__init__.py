"""Runs a pipeline's batch in Python on the executors: no record passes through the JVM."""
