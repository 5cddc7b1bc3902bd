"""The clients that people use, each against a real gateway."""
