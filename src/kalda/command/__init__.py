"""The parts that all tools share: common options, the output port and exit codes.

A tool is a module with a group from `command.noun` and functions that `command.command` adds to it, or with a
single command; its line in `kalda.cli_tools` makes it a command of `kalda`, which loads it when it is called.
"""
