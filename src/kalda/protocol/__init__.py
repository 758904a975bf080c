"""Implements Kafka's wire protocol: schema declarations, codecs, headers and framing. Sans-IO.

It opens no socket and handles no request; `net` moves the bytes and `broker` handles the requests. It imports
only `common`.
"""
