"""The command-line tools: `kalda NOUN VERB`, for example `kalda topics list`.

Each tool is one module with click commands; `kalda.command` has what all of them share. A tool
decides nothing about the wire: it calls the clients and shows their results.
"""
