"""Options of sessions and runs, execution providers, devices, enumerations."""
