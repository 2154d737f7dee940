"""Fair comparison of inference engines on one machine: `compare`, and what it is made of.

Each engine lives in a process of its own, which is stopped while another is measured. They are measured in turn, in
short slices, so that a machine whose speed drifts slows all of them alike. A probe of the machine's speed stands around
each slice, and slices beside a slow probe are left out.
"""
