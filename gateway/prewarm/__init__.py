"""Prewarming: what many will ask again is brought to a worker's cache before they ask."""
