"""`kalda produce` and `kalda consume`: records from lines of text, and records as lines of text."""
