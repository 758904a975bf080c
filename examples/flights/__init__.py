"""An example that sends a year of flights from New York through a broker and a Spark pipeline; see `demo`."""
