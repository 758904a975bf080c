"""Provides the programs that use a simulated cluster; each checks at its end what the cluster promised."""
