"""The processes that `kalda` commands run: a broker, coordination, one of each, a group of brokers."""
