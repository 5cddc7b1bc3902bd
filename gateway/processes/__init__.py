"""Several processes behind one port: `homing serve --processes N`."""
