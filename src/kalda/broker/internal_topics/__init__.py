"""Runs coordinators on the partitions of internal topics that this broker leads.

It creates the topics, and loads and unloads their shards when this broker becomes or stops being leader. It
does not decide what coordinators decide: `kalda.coordinator` does. It uses `metadata`, `topics` and
`replicas`; `groups` and `transactions` add their coordinators to it.
"""
