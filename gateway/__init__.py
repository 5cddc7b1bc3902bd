"""Every socket, clock and secret of Homing lives in this package."""
