"""Plans and runs pipelines."""
