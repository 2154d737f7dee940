// Matrix products on NVIDIA's matrix units through inline PTX: y[p, c] = sum over q of x[p, q] w[c, q], halves with float
// sums. The channels of x come in quads (4 adjacent halves), numbered q; a step multiplies four quads.
//   WM      tiles of 16 positions of a warp      WN    tiles of 16 output channels of a warp
//   PW, NW  warps side by side along positions and along channels
//   SPLIT      warps that share the steps of one tile and add up their sums in local memory
//   STAGES  steps whose operands are in flight at any time
// Fragments come straight from global memory: the layout mma.m16n8k16 prescribes along k and n may be permuted as long as
// x and w agree. Thread t of a quad of threads takes quad 4 * step + t of x, so that its share of a row is 8 adjacent
// bytes, and the weights are packed for it: [tile of 16 channels][step][lane]{8 halves}; its results are 4 adjacent
// channels. The file that includes this one defines before it
//   CURSOR                       type of the state that iterates over the quads
//   quad_at(x, cursor, i, h)     this lane's quad of position 16 * i + 8 * h of its warp, as uint2
//   advance(cursor)              advances by one step
#define LANE ((int)get_local_id(0) & 31)
#define WARP ((int)get_local_id(0) >> 5)
#define WARP_P (WARP % PW)
#define WARP_N (WARP / PW % NW)
#define WARP_K (WARP / (PW * NW))
#define FIRST_POSITION (((int)get_group_id(0) * PW + WARP_P) * 16 * WM)
#define FIRST_TILE (((int)get_group_id(1) * NW + WARP_N) * WN)
#define VECTORS (WM * WN * 2)

static inline void multiply(float *d, uint2 top, uint2 bottom, uint low, uint high) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(top.x), "r"(bottom.x), "r"(top.y), "r"(bottom.y), "r"(low), "r"(high));
}

// Sum steps first..last-1 of the warp's tile into sum[WM][WN][2][4]. The first weights are asked for before other launches are
// awaited.
static inline void sum_steps(float sum[WM][WN][2][4], global const REAL *x, global const uint4 *weights, CURSOR *cursor,
                             int tiles, int steps, int first, int last) {
    uint2 a[STAGES][WM][2];
    uint4 b[STAGES][WN];
    global const uint4 *w[WN];
    #pragma unroll
    for (int j = 0; j < WN; ++j) w[j] = weights + (size_t)min(FIRST_TILE + j, tiles - 1) * steps * 32 + LANE;
#define FETCH_WEIGHTS(u, step) do { \
        _Pragma("unroll") \
        for (int j = 0; j < WN; ++j) b[u][j] = (step) < last ? w[j][(step) * 32] : (uint4)0; \
    } while (0)
#define FETCH_QUADS(u, step) do { \
        const bool exists = (step) < last; \
        _Pragma("unroll") \
        for (int i = 0; i < WM; ++i) { \
            a[u][i][0] = exists ? quad_at(x, cursor, i, 0) : (uint2)0; \
            a[u][i][1] = exists ? quad_at(x, cursor, i, 1) : (uint2)0; \
        } \
        advance(cursor); \
    } while (0)

    #pragma unroll
    for (int u = 0; u < STAGES; ++u) FETCH_WEIGHTS(u, first + u);
    AWAIT;
    #pragma unroll
    for (int u = 0; u < STAGES; ++u) FETCH_QUADS(u, first + u);
    for (int s = first; s < last; s += STAGES) {
        #pragma unroll
        for (int u = 0; u < STAGES; ++u) {
            #pragma unroll
            for (int i = 0; i < WM; ++i)
                #pragma unroll
                for (int j = 0; j < WN; ++j) {
                    multiply(sum[i][j][0], a[u][i][0], a[u][i][1], b[u][j].x, b[u][j].y);
                    multiply(sum[i][j][1], a[u][i][0], a[u][i][1], b[u][j].z, b[u][j].w);
                }
            FETCH_WEIGHTS(u, s + u + STAGES);
            FETCH_QUADS(u, s + u + STAGES);
        }
    }
#undef FETCH_QUADS
#undef FETCH_WEIGHTS
}

// The four adjacent channels of position 8 * h + lane / 4 of tile (i, j).
#define RESULT(sum, i, j, h) \
    ((float4)((sum)[i][j][0][2 * (h)], (sum)[i][j][0][2 * (h) + 1], (sum)[i][j][1][2 * (h)], (sum)[i][j][1][2 * (h) + 1]))

// Call STORE_RESULT(float4 v, position, block of four channels, r) once for each vector of the tile, sums of all SPLIT added;
// it is number r of the work-item's RESULTS, and RESULT_BLOCK(r) is its block. FEW_RESULTS: operands of the results may be held
// in registers.
// LOCAL_PARTS declares the local memory for that; it stands among the kernel's outermost declarations.
#if SPLIT > 1
#define RESULTS ((VECTORS + SPLIT - 1) / SPLIT)
#define RESULT_VECTOR(r) (WARP_K + (r) * SPLIT)
#define FEW_RESULTS (RESULTS <= 2)
#else
#define RESULTS VECTORS
#define RESULT_VECTOR(r) (r)
#define FEW_RESULTS (WN <= 2) // blocks
#endif
#if FEW_RESULTS
#define EACH_RESULT _Pragma("unroll")
#else
#define EACH_RESULT _Pragma("unroll 1")
#endif
#define RESULT_POSITION(r) (FIRST_POSITION + RESULT_VECTOR(r) / 2 / WN * 16 + RESULT_VECTOR(r) % 2 * 8 + LANE / 4)
#define RESULT_BLOCK(r) ((FIRST_TILE + RESULT_VECTOR(r) / 2 % WN) * 4 + LANE % 4)
#if SPLIT > 1
#define LOCAL_PARTS local float4 parts[PW * NW * SPLIT * VECTORS * 32];
#define STORE_ALL(sum) do { \
        local float4 *mine = parts + (WARP_N * PW + WARP_P) * (SPLIT * VECTORS * 32) + LANE; \
        _Pragma("unroll") \
        for (int v = 0; v < VECTORS; ++v) \
            mine[(WARP_K * VECTORS + v) * 32] = RESULT(sum, v / 2 / WN, v / 2 % WN, v % 2); \
        barrier(CLK_LOCAL_MEM_FENCE); \
        EACH_RESULT \
        for (int r = 0; r < RESULTS; ++r) { \
            if (VECTORS % SPLIT && RESULT_VECTOR(r) >= VECTORS) break; \
            float4 total = mine[RESULT_VECTOR(r) * 32]; \
            _Pragma("unroll") \
            for (int k = 1; k < SPLIT; ++k) total += mine[(k * VECTORS + RESULT_VECTOR(r)) * 32]; \
            STORE_RESULT(total, RESULT_POSITION(r), RESULT_BLOCK(r), r); \
        } \
    } while (0)
#else
#define LOCAL_PARTS
#define STORE_ALL(sum) do { \
        _Pragma("unroll") \
        for (int r = 0; r < RESULTS; ++r) \
            STORE_RESULT(RESULT(sum, r / 2 / WN, r / 2 % WN, r % 2), RESULT_POSITION(r), RESULT_BLOCK(r), r); \
    } while (0)
#endif
