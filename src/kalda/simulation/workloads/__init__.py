"""Programs that use a simulated cluster; each checks in the end what it was promised."""
