"""The mind of Homing: pure functions and state that decide, with reasons, where a prompt goes."""
