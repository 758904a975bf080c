"""Client metrics (KIP-714): who shall push what, and what was pushed."""
