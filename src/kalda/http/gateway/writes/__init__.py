"""Writes of records by POST, once for each idempotency key where there is one."""
