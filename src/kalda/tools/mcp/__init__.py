"""`kalda mcp`: a server of the Model Context Protocol, by which agents look at a cluster and may change it.

`reads` and `writes` are what the tools do, without the protocol; `answers` bounds what they return; `server`
registers them with the package `mcp`, which the extra [mcp] installs, and writes each call to the audit log.
"""
