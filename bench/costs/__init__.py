"""What a router costs beside others: the parts of bench/overhead.py."""
