"""What must hold in a simulated cluster, while it runs and in the end."""
