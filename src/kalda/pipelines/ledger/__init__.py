"""The completeness ledger: one record for each batch and partition, which says what became of its offsets."""
