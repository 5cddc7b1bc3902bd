"""Gateways that act as one: each tells the others through Redis what it placed, and applies what they tell."""
