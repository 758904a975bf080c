"""Checks values that a producer framed with the id of a registry's schema; bytes in, reasons out.

`framing` reads the id and the message indexes, `subjects` names what an id must be registered under, and a
check for each format (`avro_check`, `json_check`, `protobuf_check`) says where a payload differs from its
schema. `record_check` puts them together for one topic. Nothing here asks a registry.
"""
