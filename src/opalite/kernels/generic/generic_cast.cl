// y = x, from half to float, or back where `narrows`.  Grid: stretches of SPAN of the `count` elements.
#include "include/no_inline.cl"
#ifndef SPAN
#define SPAN 256
#endif

static void cast_span(int begin, global const uchar *x, global uchar *y, int count, int narrows) {
    COMPILED_ONCE(count)
    const int end = min(begin + SPAN, count);
    #pragma nounroll
    for (int i = begin; i < end; ++i) {
        if (narrows) vstore_half(((global const float *)x)[i], i, (global half *)y);
        else ((global float *)y)[i] = vload_half(i, (global const half *)x);
    }
}

kernel void cast_general(global const uchar *x, global uchar *y, int count, int narrows) {
    cast_span(get_global_id(0) * SPAN, x, y, count, narrows);
}
