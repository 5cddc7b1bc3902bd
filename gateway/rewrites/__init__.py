"""Rewrites: what a tenant lets the gateway change in the prompt itself, each by its name, none by default."""
