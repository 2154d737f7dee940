"""What is PoCL's own: repairs, its folders and header, a linker for it, limits of a process that it does not survive.

`cl/` stands on this folder. Step loops, which stand on `cl/`, are in `loop/`.
"""
