"""NATS's client protocol without I/O: its operations, subjects, and the sessions of a server.

`parser` reads operations from bytes, `operations` writes them, `subject_trie` finds the subscriptions of a
subject, and `session` answers one client over the `exchange` of all of them. Sockets, timers and logins are
in `kalda.broker.nats`.
"""
