"""Grants read leases: clients read the files of a partition in place, and deletions wait for them.

A lease covers offsets of one partition for a bounded time. While it lasts, retention, DeleteRecords and the
log cleaner leave the segments with these offsets in place. `read_leases` is the table, without I/O;
`lease_grants` finds the files of a range and identifies them.
"""
