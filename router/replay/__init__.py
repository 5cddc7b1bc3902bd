"""What would it have cost? Recorded requests over simulated workers, through the very policies that serve live ones."""
