// The sides of matrix products on images (image_matmul.cl): a row-major buffer or an image each, texels along rows.
#if A_BUFFER
#define A_PARAM global const REAL *a
#define READ_A(k, row) four(a + (size_t)(row) * K, k, K)
#else
#define A_PARAM read_only image2d_t a
#define READ_A(k, row) READ_ACC(a, (k) / 4, row)
#endif
#if SPLIT > 1
#define GROUP __attribute__((reqd_work_group_size(GX, 1, SPLIT)))
#else
#define GROUP
#endif
#if Y_BUFFER
#define Y_PARAM global REAL *y
#else
#define Y_PARAM write_only image2d_t y
#endif

#if A_BUFFER
// Four elements of a row of K from k on, zeros past its end.
static inline ACCV four(global const REAL *row, int k, int K) {
    if (k + 4 <= K) return LOADV(row, k);
    ACC v[4];
    for (int l = 0; l < 4; ++l) v[l] = k + l < K ? LOAD(row, k + l) : (ACC)0;
    return (ACCV)(v[0], v[1], v[2], v[3]);
}
#endif
