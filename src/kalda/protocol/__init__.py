"""Kafka's wire protocol: schema declarations, codecs, headers and framing. Sans-IO."""
