"""Blocks between workers, and a look at what is cached: warm-up, pull, map."""
