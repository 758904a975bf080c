"""Schemas of a registry: parsing, canonical text, and which change is compatible.

Pure functions of texts: nothing here reads a topic, a socket or a file. The rules and the messages are those
of Confluent's Schema Registry 8. A call may take tens of milliseconds; an event loop runs it in a thread.
"""
