"""The transaction coordinator: which transaction a producer is in, and how it ends (KIP-98)."""
