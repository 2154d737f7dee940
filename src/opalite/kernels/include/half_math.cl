// OpenCL C's half functions that kernels with half sums use, for a compiler that has vectors of halves and
// their arithmetic but not the library of cl_khr_fp16. Included before such kernels and after include/common.cl's types.
#define OVERLOAD static inline __attribute__((overloadable))
typedef half2 half2_at __attribute__((aligned(2)));
typedef half4 half4_at __attribute__((aligned(2)));
typedef half8 half8_at __attribute__((aligned(2)));
typedef half16 half16_at __attribute__((aligned(2)));

#define HALF_ACCESS(n, space) \
    OVERLOAD half##n vload##n(size_t i, const space half *p) { return *(const space half##n##_at *)(p + n * i); } \
    OVERLOAD void vstore##n(half##n v, size_t i, space half *p) { *(space half##n##_at *)(p + n * i) = v; }
#define HALF_MEMORIES(n) HALF_ACCESS(n, global) HALF_ACCESS(n, local) HALF_ACCESS(n, ) // without a name: private
HALF_MEMORIES(2)
HALF_MEMORIES(4)
HALF_MEMORIES(8)
HALF_MEMORIES(16)

OVERLOAD half2 convert_half2(float2 v) { return (half2)((half)v.x, (half)v.y); }
OVERLOAD half4 convert_half4(float4 v) { return (half4)(convert_half2(v.lo), convert_half2(v.hi)); }
OVERLOAD half8 convert_half8(float8 v) { return (half8)(convert_half4(v.lo), convert_half4(v.hi)); }
OVERLOAD half16 convert_half16(float16 v) { return (half16)(convert_half8(v.lo), convert_half8(v.hi)); }
OVERLOAD float2 convert_float2(half2 v) { return (float2)((float)v.x, (float)v.y); }
OVERLOAD float4 convert_float4(half4 v) { return (float4)(convert_float2(v.lo), convert_float2(v.hi)); }
OVERLOAD float8 convert_float8(half8 v) { return (float8)(convert_float4(v.lo), convert_float4(v.hi)); }
OVERLOAD float16 convert_float16(half16 v) { return (float16)(convert_float8(v.lo), convert_float8(v.hi)); }

// The compiler contracts the product and the sum.
OVERLOAD half fma(half a, half b, half c) { return a * b + c; }
#define HALF_CHOICES(n) \
    OVERLOAD half##n fma(half##n a, half##n b, half##n c) { return a * b + c; } \
    OVERLOAD half##n select(half##n a, half##n b, short##n c) { return c ? b : a; }
HALF_CHOICES(2)
HALF_CHOICES(4)
HALF_CHOICES(8)
HALF_CHOICES(16)
