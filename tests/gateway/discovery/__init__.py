"""Tests of how workers are found."""
