"""The server of one broker: request dispatch, handlers, replicas, delayed operations and their wiring."""
