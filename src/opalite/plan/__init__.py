"""Schedule, memory plan and Program: plain data that runs anywhere."""
