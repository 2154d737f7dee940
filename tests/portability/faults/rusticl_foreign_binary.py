"""Mesa 22.3's rusticl ends the process that gives it a binary which it did not write; it ought to refuse it."""

import pyopencl as cl

device = cl.get_platforms()[0].get_devices()[0]
try:
    cl.Program(cl.Context([device]), [device], [b"not what this driver writes"]).build()
    print("built")
except cl.Error as e:
    print("refused:", e)
