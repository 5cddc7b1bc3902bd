"""The bars of placement: which replays they need, how those are run and kept, and what they are held against."""
