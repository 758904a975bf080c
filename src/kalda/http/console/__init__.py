"""The console: pages that show a cluster and change it, rendered by the server.

`visits` knows who looks at a page and renders it, `changes` asks before anything is changed, `snapshots`
keeps what is known of the cluster for some seconds. A module with pages has them as functions of a `Visit`;
`routes` puts them together. What pages show is computed by modules without I/O, such as `table_views`.
"""
