"""Group and transaction coordinators: state machines kept in partitions of internal topics."""
