"""The pipeline file: what it may contain, and how it is read."""
