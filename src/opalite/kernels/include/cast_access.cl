// Storage types of a cast, SRC_T of x and DST_T of y, and its accesses: LOAD1 and STORE1 of one element, LOADP and STOREP of
// adjacent ones, of which VALUE holds one and TILE_V all. Generated; these are for floats, four at a time.
#ifndef SRC_T
#define SRC_T float
#define DST_T float
#define VALUE float
#define TILE_V float4
#define LOAD1(p, i) ((p)[i])
#define LOADP(p, i) vload4(0, (p) + (i))
#define STORE1(p, i, v) ((p)[i] = (v))
#define STOREP(p, i, v) vstore4(v, 0, (p) + (i))
#endif
