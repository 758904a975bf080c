"""Topics as tables of DuckDB, for `kalda sql` and for the console.

`push_down` decides which offsets a query needs, `topic_table` is a topic as a table, `topic_source` reads the
cluster, and `columns` gives keys and values their types. It needs the extra [sql].
"""
