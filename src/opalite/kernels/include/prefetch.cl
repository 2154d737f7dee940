// PREFETCH(p): prefetches the cache line at p, which is read soon and perhaps once more (into the L2
// cache, since L1 holds the data in use). Any address is allowed, also past the end of a buffer.
// Hardware prefetchers stop at the end of a 4 KB page. No operation on other devices.
#define PREFETCH(p)
#if defined(__has_builtin) && (defined(__x86_64__) || defined(__aarch64__))
#if __has_builtin(__builtin_prefetch)
#undef PREFETCH
#define PREFETCH(p) __builtin_prefetch((const void *)(size_t)(p), 0, 2)
#endif
#endif
