// AWAIT: what stands before it reads constants alone, copies them to local memory at most, and has no barrier. Where launches
// are linked, that may run before other launches are done (ptx/persistent_kernel.py, which looks whether it is so), so that weights are on
// their way while groups wait for each other. A comment to NVIDIA's assembler, nothing elsewhere. All work-items come by once.
//   INLINE_PTX   the device builds inline PTX
#if defined(INLINE_PTX) && INLINE_PTX && !defined(__x86_64__) && !defined(__aarch64__)
#define AWAIT asm volatile("//linked-await" : : : "memory")
#else
#define AWAIT
#endif
