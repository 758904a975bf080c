"""Judges what a cluster says of itself, for the tools and for the console. Pure functions."""
