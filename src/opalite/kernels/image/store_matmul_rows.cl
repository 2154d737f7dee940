// The end of matrix products on images, inside their kernel: adds up the SPLIT parts of acc[TM][TB], and writes rows of y.
#if SPLIT > 1
    local ACCV parts[SPLIT][TM * TB][GX];
    const int column = get_local_id(0);
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TB; ++j) parts[share][i * TB + j][column] = acc[i][j];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (share > 0 || !inside) return;
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TB; ++j)
            for (int s = 1; s < SPLIT; ++s) acc[i][j] += parts[s][i * TB + j][column];
    }
#endif
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (m0 + i >= M) break;
        const int row = z * M + m0 + i;
        #pragma unroll
        for (int j = 0; j < TB; ++j) {
            const int block = b0 + j, n = block * 4;
            if (block >= blocks) break;
#if Y_BUFFER
            if (n + 4 <= N) {
                const ACCV v = EPILOGUE(acc[i][j], row, n, batches * M, N);
                STOREV(y, (size_t)row * N + n, v);
            } else {
                const ACC lanes[4] = {acc[i][j].x, acc[i][j].y, acc[i][j].z, acc[i][j].w};
                for (int l = 0; n + l < N; ++l) {
                    const ACC v = EPILOGUE1(lanes[l], row, n + l, batches * M, N);
                    STORE(y, (size_t)row * N + n + l, v);
                }
            }
#else
            const ACCV v = EPILOGUE(acc[i][j], row / H, block, row % H, 0, blocks, H, 1);
            WRITE_ACC(y, block, row, MASK_LANES(v, N - n));
#endif
        }
    }
