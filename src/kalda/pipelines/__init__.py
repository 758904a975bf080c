"""Data pipelines declared in a file and run on Spark: `kalda pipeline`.

Importing the package imports neither Spark nor Arrow; the modules that move data do.
"""
