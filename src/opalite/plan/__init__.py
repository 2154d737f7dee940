"""Planning: emission, memory planning, templates and bundles; the Program is plain data."""
