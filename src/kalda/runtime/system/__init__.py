"""The ports of `kalda.runtime` on the operating system."""
