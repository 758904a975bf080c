"""`kalda sql`: queries over topics by DuckDB.

`push_down` decides which offsets a query needs, `topic_table` is a topic as a table, `topic_source` reads the
cluster, `columns` gives keys and values their types, `query` runs a statement and `rows_out` writes its rows.
All but `command` need the extra [sql].
"""
