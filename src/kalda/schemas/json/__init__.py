"""JSON Schema of drafts 4, 6, 7, 2019-09 and 2020-12: parsing, canonical text, compatibility.

The answers are those of Confluent's Schema Registry 8: a schema without ``$schema`` is draft 7, differences
have its names, and content models decide which properties may come and go.
"""
