// The transforms of Winograd's tiles along one side: F outputs from A inputs (conv/winograd.cl). Needs F (2 or 4).
#define A (F + 2)

static inline void transform_input(const ACCV *d, ACCV *v) {
#if F == 2
    v[0] = d[0] - d[2];
    v[1] = d[1] + d[2];
    v[2] = d[2] - d[1];
    v[3] = d[1] - d[3];
#else
    const ACCV a = d[4] - (ACC)4 * d[2], b = d[3] - (ACC)4 * d[1], c = d[4] - d[2], e = (ACC)2 * (d[3] - d[1]);
    v[0] = (ACC)4 * d[0] - (ACC)5 * d[2] + d[4];
    v[1] = a + b;
    v[2] = a - b;
    v[3] = c + e;
    v[4] = c - e;
    v[5] = (ACC)4 * d[1] - (ACC)5 * d[3] + d[5];
#endif
}

static inline void transform_output(const ACCV *m, ACCV *y) {
#if F == 2
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] - m[3];
#else
    const ACCV a = m[1] + m[2], b = m[1] - m[2], c = m[3] + m[4], d = m[3] - m[4];
    y[0] = m[0] + a + c;
    y[1] = b + (ACC)2 * d;
    y[2] = a + (ACC)4 * c;
    y[3] = b + (ACC)8 * d + m[5];
#endif
}
