// The start of matrix products on images, inside their kernel of `batches` products: this work-item's first row m0 and block b0, its
// share of the terms, whether it has any results, and empty sums acc[TM][TB].
    const int blocks = (N + 3) / 4, b0 = get_global_id(0) * TB, m0 = get_global_id(1) * TM;
    const int share = get_global_id(2) % SPLIT, z = get_global_id(2) / SPLIT;
    const bool inside = b0 < blocks && m0 < M && z < batches;
#if SPLIT == 1
    if (!inside) return;
#endif
    ACCV acc[TM][TB];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TB; ++j) acc[i][j] = (ACCV)0;
    }
