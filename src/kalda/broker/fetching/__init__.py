"""Serves fetches that last longer than one request: fetch sessions (KIP-227) and fetches that wait for bytes.

Reading records is `replicas`, which the package uses; the Fetch handler in `requests` uses the package.
"""
