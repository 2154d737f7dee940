"""Mesa 26.2's rusticl (Debian unstable) builds no program with fma, sin, cos or tan: `nir_shader not fully linked`.

It says itself that it finds LLVM's libclc and not Mesa's. `mad`, `native_sin` and `sinpi` build.
"""

import pyopencl as cl

CALLS = ("fma(x[1], x[2], x[3])", "sin(x[1])", "cos(x[1])", "tan(x[1])")
BUILT = ("mad(x[1], x[2], x[3])", "native_sin(x[1])", "sinpi(x[1])")

context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
for call in (*CALLS, *BUILT):
    try:
        cl.Program(context, f"kernel void f(global float *x) {{ x[0] = {call}; }}").build(cache_dir=False)
    except cl.RuntimeError as e:
        print(call, "does not build:", [line for line in str(e).splitlines() if "error" in line][-1:])
    else:
        print(call, "builds")
