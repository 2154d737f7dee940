// y = an expression of up to six tensors with broadcasting, interpreted from `code`: one program for all
// expressions.  A work-item computes up to PACK * VECTORS neighbours of a row, each operation on all of them.
// Values lie in registers of 32-bit lanes: floats, or integers as their bits.  `code` holds `steps` operations of five numbers:
// the operation, the register of its result, those of its arguments; OPERATION_LITERAL has a literal's bits in their place.
// Operands are in the first registers.  Generated in front (interpreter_operations.py): OPERATIONS, the cases of the switch.
//   t0..t5, ty   how an element is stored: 0 in 32 bits, 1 unsigned byte, 2 signed byte
//   e0..e3       extents of the axes outside of the columns; s<k>_<axis> steps of operand k along them, s<k>_4 along a row
#include "include/no_inline.cl"
#ifndef OPERATIONS
#define OPERATIONS
#define VECTORS 2
#endif
#define REGISTERS 16
#define OPERANDS 6
#define AXES 5
#define INTV VEC_T(int, PACK)
#define FLOATV VEC_T(float, PACK)
#define STEPS_OF(k) long s##k##_0, long s##k##_1, long s##k##_2, long s##k##_3, long s##k##_4
#define STEP_LIST(k) s##k##_0, s##k##_1, s##k##_2, s##k##_3, s##k##_4
#define FLOAT(k) r[k + v]
#define INT(k) AS_N(PACK, int)(r[k + v])
#define SET_FLOAT(value) r[to + v] = (value);
#define SET_INT(value) r[to + v] = AS_N(PACK, float)(value);

#if defined(__x86_64__) || defined(__aarch64__)
#define LOAD_BYTES(t, p) (*(global const CAT(VEC_T(t, PACK), _at) *)(p))
#define STORE_BYTES(v, p) (*(global CAT(VEC_T(uchar, PACK), _at) *)(p) = (v))
#else
#define LOAD_BYTES(t, p) VLOAD(PACK, 0, (global const t *)(p))
#define STORE_BYTES(v, p) VSTORE(PACK, v, 0, p)
#endif

static inline int element(global const uchar *x, int type, long i) {
    if (type == 0) return ((global const int *)x)[i];
    return type == 1 ? (int)x[i] : (int)((global const char *)x)[i];
}

#define PARAMETERS \
    global const uchar *x0, global const uchar *x1, global const uchar *x2, global const uchar *x3, global const uchar *x4, \
    global const uchar *x5, global uchar *y, global const int *code, int steps, int operands, int result, \
    int columns, int rows, int e0, int e1, int e2, int e3, int t0, int t1, int t2, int t3, int t4, int t5, int ty, \
    STEPS_OF(0), STEPS_OF(1), STEPS_OF(2), STEPS_OF(3), STEPS_OF(4), STEPS_OF(5)
#define ARGUMENTS \
    x0, x1, x2, x3, x4, x5, y, code, steps, operands, result, columns, rows, e0, e1, e2, e3, t0, t1, t2, t3, t4, t5, \
    ty, STEP_LIST(0), STEP_LIST(1), STEP_LIST(2), STEP_LIST(3), STEP_LIST(4), STEP_LIST(5)

static void compute_expression(int item, int row, PARAMETERS) {
    COMPILED_ONCE(steps)
    const int begin = item * (PACK * VECTORS);
    if (begin >= columns || row >= rows) return;
    const int count = min(PACK * VECTORS, columns - begin), vectors = (count + PACK - 1) / PACK, whole = count / PACK;
    const int q3 = row / e3, q2 = q3 / e2, q1 = q2 / e1;
    const int c0 = q1, c1 = q2 - q1 * e1, c2 = q3 - q2 * e2, c3 = row - q3 * e3;
    const long step[OPERANDS][AXES] = {
        {STEP_LIST(0)}, {STEP_LIST(1)}, {STEP_LIST(2)}, {STEP_LIST(3)}, {STEP_LIST(4)}, {STEP_LIST(5)},
    };
    const int types[OPERANDS] = {t0, t1, t2, t3, t4, t5};
    FLOATV r[REGISTERS * VECTORS];
    int lanes[PACK];
    #pragma nounroll
    for (int k = 0; k < operands; ++k) {
        global const uchar *x = k == 0 ? x0 : k == 1 ? x1 : k == 2 ? x2 : k == 3 ? x3 : k == 4 ? x4 : x5;
        const long apart = step[k][4];
        const long at = c0 * step[k][0] + c1 * step[k][1] + c2 * step[k][2] + c3 * step[k][3] + begin * apart;
        if (apart == 0) {
            const FLOATV same = as_float(element(x, types[k], at));
            for (int v = 0; v < vectors; ++v) r[k * VECTORS + v] = same;
            continue;
        }
        const int direct = apart == 1 ? whole : 0;
        #pragma nounroll
        for (int v = 0; v < direct; ++v) {
            FLOATV held;
            if (types[k] == 0) held = LOADV((global const float *)x, at + v * PACK);
            else if (types[k] == 1) held = AS_N(PACK, float)(CONVERT_N(PACK, int)(LOAD_BYTES(uchar, x + at + v * PACK)));
            else held = AS_N(PACK, float)(CONVERT_N(PACK, int)(LOAD_BYTES(char, x + at + v * PACK)));
            r[k * VECTORS + v] = held;
        }
        #pragma nounroll
        for (int v = direct; v < vectors; ++v) {
            #pragma nounroll
            for (int i = 0; i < PACK; ++i) lanes[i] = element(x, types[k], at + min(v * PACK + i, count - 1) * apart);
            r[k * VECTORS + v] = AS_N(PACK, float)(VLOAD(PACK, 0, lanes));
        }
    }
    #pragma nounroll
    for (int s = 0; s < steps; ++s) {
        global const int *step_code = code + s * 5;
        const int to = step_code[1] * VECTORS, a = step_code[2] * VECTORS, b = step_code[3] * VECTORS, c = step_code[4] * VECTORS;
        // Branch prediction works well if a switch takes the same case repeatedly.
        #pragma nounroll
        for (int v = 0; v < vectors; ++v) {
            switch (step_code[0]) {
                case 0: r[to + v] = as_float(step_code[2]); break;
                OPERATIONS
            }
        }
    }
    const long out = (long)row * columns + begin;
    #pragma nounroll
    for (int v = 0; v < whole; ++v) {
        const FLOATV made = r[result * VECTORS + v];
        if (ty == 0) STOREV((global float *)y, out + v * PACK, made);
        else STORE_BYTES(CONVERT_N(PACK, uchar)(AS_N(PACK, int)(made) & 255), y + out + v * PACK);
    }
    #pragma nounroll
    for (int v = whole; v < vectors; ++v) {
        VSTORE(PACK, AS_N(PACK, int)(r[result * VECTORS + v]), 0, lanes);
        #pragma nounroll
        for (int i = 0; i < PACK && v * PACK + i < count; ++i) {
            if (ty == 0) ((global int *)y)[out + v * PACK + i] = lanes[i];
            else y[out + v * PACK + i] = (uchar)lanes[i];
        }
    }
}

kernel void elementwise_general(PARAMETERS) {
    compute_expression(get_global_id(0), get_global_id(1), ARGUMENTS);
}
