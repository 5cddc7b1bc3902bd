"""What the gateway writes down of its traffic, so that it can be replayed: times, lengths, hashes; never text."""
