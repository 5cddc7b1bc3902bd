"""KV events of workers: found, followed and decoded, so that placement knows what it would otherwise believe."""
