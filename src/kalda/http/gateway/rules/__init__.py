"""Rules for requests to the gateway: other topics, rate limits and faults, by topic and caller."""
