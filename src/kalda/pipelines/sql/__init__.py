"""SQL that Kalda evaluates itself, on Arrow batches and row by row; the rest is left to Spark."""
