// For long functions of a kernel: COMPILED_ONCE(n), their first statement, prevents inlining; n
// is a non-negative parameter that the compiler does not know. COMPILED_ONCE_AS(n, any): for a function that returns a
// value, of the type of `any`.
// PoCL makes three functions of a kernel and inlines in each all that the kernel calls, so that it compiles the kernel three
// times; only a function that takes a label's address is not inlined. Measured with PoCL 3.0 (LLVM 14): 0.24 s in place of
// 0.53 for generic/generic_conv_matmul.cl, and runs of the same speed. Work-item functions are the kernel's alone: numbers of work-items
// have to be parameters.
#if defined(POCL_DEVICE_ADDRESS_BITS) && defined(__clang_major__) && __clang_major__ <= 14
#define COMPILED_ONCE_AS(n, any)                                               \
    __typeof__(&&usual_) const labels_[2] = {&&usual_, &&never_};              \
    goto *labels_[(n) < 0];                                                    \
    never_: if ((n) == -1) return any;                                         \
    usual_:;
#define COMPILED_ONCE(n) COMPILED_ONCE_AS(n, )
#else
#define COMPILED_ONCE_AS(n, any)
#define COMPILED_ONCE(n)
#endif
