"""Implements the admin client: one method for each operation, on many things at once."""
