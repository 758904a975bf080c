"""The group coordinator: groups and the offsets that they commit, kept in ``__consumer_offsets``."""
