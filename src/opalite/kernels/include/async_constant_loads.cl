// AWAIT: the code before it only reads constants, at most copies them to local memory, and has no barrier. If launches
// are linked, that code may run before other launches end (ptx/persistent_kernel.py verifies this), so that weights are
// in flight at a grid barrier. A comment to NVIDIA's assembler, nothing elsewhere. Every work-item executes it once.
//   INLINE_PTX   the device builds inline PTX
#if defined(INLINE_PTX) && INLINE_PTX && !defined(__x86_64__) && !defined(__aarch64__)
#define AWAIT asm volatile("//linked-await" : : : "memory")
#else
#define AWAIT
#endif
