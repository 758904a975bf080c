"""Connects the group coordinator of `kalda.coordinator` to the broker: settings, metadata and its topic.

It uses `config`, `context`, `metadata`, `topics` and `internal_topics`. What a coordinator decides is not
here.
"""
