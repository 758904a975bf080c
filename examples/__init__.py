"""Programs that show Kalda at work."""
