"""Topics as clients ask for them: what is allowed, where replicas go, and waiting until it is done."""
