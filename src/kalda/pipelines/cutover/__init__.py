"""Moves producers and consumers from one cluster to another one at a cut that both logs agree on."""
