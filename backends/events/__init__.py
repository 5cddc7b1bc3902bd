"""What becomes of cached blocks, published as vLLM publishes it: KV events over ZMQ."""
