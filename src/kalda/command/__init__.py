"""What every tool shares: lazy loading, common options, the output port and exit codes.

A tool is a module with ``app = tool_app(...)`` and functions that `command` registers; its line in
`kalda.cli_tools` makes it a command of `kalda`.
"""
