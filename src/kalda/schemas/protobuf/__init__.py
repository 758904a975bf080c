"""Protobuf schemas by the rules of Confluent's registry, whose parser and writer are Square's Wire."""
