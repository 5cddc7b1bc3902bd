"""`homing replay`'s inside: which replays to run, the processes that run them, and how what they found is shown."""
