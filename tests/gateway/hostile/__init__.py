"""Malformed and misleading messages: a corpus, what mutates it, and the arena they are let loose in."""
