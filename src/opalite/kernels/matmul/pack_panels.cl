// Copies matrices into the panels that matmul/gemm_cpu.cl reads: out[z, panel, k, WIDTH] = b[z, k, panel * WIDTH + lane],
// zeros past column N. Grid: (panels, ceil(K / STEPS), matrices); one work-item copies STEPS rows of one panel.
//   NV        vectors of PACK columns in a panel
//   TRANS_B   b is stored [N, K]: blocks of PACK x PACK elements are transposed in registers
#include "include/block_transpose.cl"
#ifndef NV
#define NV 2
#endif
#ifndef TRANS_B
#define TRANS_B 0
#endif
#define STEPS 64
#define WIDTH (NV * PACK)

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void matmul_pack(global const REAL *restrict b, global REAL *restrict out, int matrices, int N, int K) {
    const int panel = get_global_id(0), k0 = get_global_id(1) * STEPS, z = get_global_id(2);
    const int n0 = panel * WIDTH, end = min(K, k0 + STEPS);
    if (n0 >= N || k0 >= K || z >= matrices) return;
    const int panels = (N + WIDTH - 1) / WIDTH;
    b += (size_t)z * K * N;
    out += ((size_t)z * panels + panel) * K * WIDTH;
    for (int j = 0; j < NV; ++j) {
        const int n = n0 + j * PACK, columns = min(PACK, N - n);
        int k = k0;
#if TRANS_B
        for (; k + PACK <= end; k += PACK) {
            ACCV block[PACK];
            #pragma unroll
            for (int i = 0; i < PACK; ++i)
                block[i] = i < columns ? LOADV(b, (size_t)(n + i) * K + k) : (ACCV)0;
            transpose(block);
            #pragma unroll
            for (int i = 0; i < PACK; ++i) STOREV(out, (size_t)(k + i) * WIDTH + j * PACK, block[i]);
        }
#else
        if (columns == PACK)
            for (; k < end; ++k) {
                const ACCV v = LOADV(b, (size_t)k * N + n);
                STOREV(out, (size_t)k * WIDTH + j * PACK, v);
            }
#endif
        for (; k < end; ++k)
            for (int i = 0; i < PACK; ++i) {
                const ACC v = i < columns ? LOAD(b, TRANS_B ? (size_t)(n + i) * K + k : (size_t)k * N + n + i) : (ACC)0;
                STORE(out, (size_t)k * WIDTH + j * PACK + i, v);
            }
    }
}
