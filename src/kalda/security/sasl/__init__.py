"""SASL: the mechanisms of both sides, the JAAS texts that configure them, and the credentials of SCRAM."""
