"""Checks requests against the ACLs, before their handlers see them and after they have answered.

`RequestAccess` holds one `Check` for each API. Without an authorizer nothing here is imported or called.
Which API needs which permission is Kafka's table (``KafkaApis``); docs/how-to/acls.md shows it.
"""
