"""The commands of `kalda pipeline`, one module each."""
