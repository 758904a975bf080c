"""The schema registry: a compacted topic in Confluent's record format, and one process that writes to it.

`state`, `records`, `subjects`, `contents`, `scope` and `changes` are pure: they take records and
requests and return state, records and errors. `topic_log` reads and writes the topic, `election` chooses the
process that writes, `forwarding` sends changes to it, and `registry` puts them together.
`kalda.http.registry_api` serves them.
"""
