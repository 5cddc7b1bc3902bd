"""Where cached blocks go when the pool needs their place, and where they come back from."""
