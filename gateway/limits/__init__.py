"""What a tenant may take: admitted first, reserved when its size is known, settled when it is over."""
