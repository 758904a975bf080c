"""`kalda sql`: queries over topics by DuckDB.

`query` runs a statement over the tables of `kalda.topic_queries`, and `rows_out` writes its rows. All but
`command` need the extra [sql].
"""
