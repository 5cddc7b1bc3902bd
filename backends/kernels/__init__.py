"""Attention and cache kernels behind one interface."""
