"""`kalda schemas`: subjects and schemas of a registry with Confluent's REST API."""
