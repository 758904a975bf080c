"""`kalda nats`: publish, subscribe and ask over a listener of NATS."""
