"""The parts of bench/gpu_kernels.py."""
