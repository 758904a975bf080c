"""Consumers of groups that live in this process and are used over HTTP."""
