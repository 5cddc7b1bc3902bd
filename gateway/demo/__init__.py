"""The demonstration: real workers, one gateway, the same load under two policies."""
