"""The group `kalda legacy`, which the modules of the tools add their commands to."""

from kalda.command.command import noun

legacy = noun("Run tools of Kafka 0.7 and 0.8 by their class names.")
