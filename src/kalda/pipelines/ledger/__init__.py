"""Keeps the completeness ledger: for each batch and partition, a record that accounts for its offsets."""
