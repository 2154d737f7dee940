// Positions in a tensor: POSITION is its element type in memory, LOAD_POSITION(p, i) reads one, POS computes with them.
//   POSITION_STORAGE   as STORAGE
#if POSITION_STORAGE == 0
#define POSITION float
#define LOAD_POSITION(p, i) p[i]
#elif POSITION_STORAGE == 1
#define POSITION half
#define LOAD_POSITION(p, i) vload_half(i, p)
#elif POSITION_STORAGE == 2
#define POSITION double
#define LOAD_POSITION(p, i) p[i]
#else
#define POSITION ushort
#define LOAD_POSITION(p, i) BF16_TO_F32(1, p[i])
#endif
#if POSITION_STORAGE == 2
#define POS double
#else
#define POS float
#endif
