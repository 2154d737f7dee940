"""Work-group generators, parameter spaces, measuring, search and the tuning database."""
