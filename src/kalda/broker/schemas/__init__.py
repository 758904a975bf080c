"""Checks produced records against the schemas of a registry (`kalda.schema.validation.key`, `…value`).

`registry_reader` asks a registry, and blocks; `registry_lookups` keeps what it answered, and asks in the
background; `schema_validation` looks into batches.
"""
