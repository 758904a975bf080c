"""Runs coordinators on the partitions of internal topics that this broker leads.

It uses `replicas`, `topics` and `metadata`; `groups` and `transactions` add their coordinators to it.
"""
