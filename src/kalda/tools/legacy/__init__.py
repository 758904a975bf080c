"""The tools of Kafka 0.7 and 0.8 under the names of their classes: `kalda legacy ProducerShell`.

One module for each tool; `group` is the group that they join, and `command` imports them. Options and output
are those of the Scala classes in `kafka.tools`, so that scripts and knowledge of that time can be used.
"""
