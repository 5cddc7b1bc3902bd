"""Model definitions and weight readers of the worker."""
