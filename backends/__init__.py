"""The bundled worker: vLLM's wire and prefix cache, small enough to read."""
