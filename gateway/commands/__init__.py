"""The subcommands of the `homing` program, one module each."""
