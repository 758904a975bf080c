"""Avro schemas by the rules of Avro's Java library 1.12, which Confluent's registry uses."""
