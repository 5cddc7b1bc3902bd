"""Where workers are found: one module per source."""
