"""Programs that show faults of OpenCL implementations without Opalite: python FILE, on the first platform."""
