"""Fair comparison of inference engines on one machine: `compare` and its parts.

Each engine has its own process, which is stopped while another one is measured. Engines are measured alternately in
short slices, so that changes of clock speed affect all of them alike. A probe measures the machine's speed around each
slice; slices with a slow probe are dropped.
"""
