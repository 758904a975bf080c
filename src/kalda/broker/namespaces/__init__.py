"""Runs namespaces on a broker: sets of names that the clients of one listener have to themselves.

`kalda.protocol.namespaces` translates the names. Here are the listeners of namespaces, the logins on them,
and the removal of what a namespace leaves behind.
"""
