// PREFETCH(p): ask a CPU for the cache line at p, which is read soon and perhaps once more after that (into the second
// level: the first one holds what is multiplied now). Any address may be asked for, past the end of a buffer as well.
// Processors fetch ahead by themselves only to the end of a page of 4 KB. Elsewhere nothing.
#define PREFETCH(p)
#if defined(__has_builtin) && (defined(__x86_64__) || defined(__aarch64__))
#if __has_builtin(__builtin_prefetch)
#undef PREFETCH
#define PREFETCH(p) __builtin_prefetch((const void *)(size_t)(p), 0, 2)
#endif
#endif
