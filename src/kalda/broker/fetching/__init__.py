"""Serves fetches that last longer than one request: fetch sessions (KIP-227) and fetches that wait for bytes.

It does not read records; `replicas`, which it uses, reads them. The Fetch handler in `requests` uses the
package.
"""
