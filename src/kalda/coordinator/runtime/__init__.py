"""What coordinators have in common: state that is loaded from, and written to, a partition of a log."""
