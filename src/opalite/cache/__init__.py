"""What is kept between processes: the folder, its stores and keys, the counters. Needs no OpenCL."""
