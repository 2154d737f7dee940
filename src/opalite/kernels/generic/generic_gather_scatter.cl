// Rows selected by indices: read_rows copies them (Gather, GatherElements, GatherND), write_rows writes updates to them (the
// Scatter operators).  A row has `inner` elements of `bytes`: 1, 2, 4 or 8. Indices are int, or long where `wide`; negative
// ones count from the end.
//   axes         (extent, step in x or y, step in indices) of `rank` axes that a line or row runs along
//   coordinates  (extent, step in x or y) of each of the `depth` adjacent indices that name a row
#include "include/no_inline.cl"
#ifndef SPAN
#define SPAN 256 // elements of a row for one work-item
#endif

static inline long index_at(global const uchar *indices, long i, int wide, int extent) {
    const long found = wide ? ((global const long *)indices)[i] : ((global const int *)indices)[i];
    return found < 0 ? found + extent : found;
}

static void copy_elements(global const uchar *from, global uchar *to, int count, int bytes) {
    COMPILED_ONCE(count)
    int i = 0;
    if (bytes >= 4) {
        const int words = count * (bytes / 4);
        #pragma nounroll
        for (; i + PACK <= words; i += PACK) STOREV((global float *)to, i, LOADV((global const float *)from, i));
        #pragma nounroll
        for (; i < words; ++i) ((global uint *)to)[i] = ((global const uint *)from)[i];
    } else if (bytes == 2) {
        #pragma nounroll
        for (; i < count; ++i) ((global ushort *)to)[i] = ((global const ushort *)from)[i];
    } else {
        #pragma nounroll
        for (; i < count; ++i) to[i] = from[i];
    }
}

// Where item number `item` of the axes begins: elements of x or y, and of indices.
static inline long2 begin_of(int item, global const int *axes, int rank) {
    long2 at = (long2)(0, 0);
    #pragma nounroll
    for (int k = rank - 1; k >= 0; --k) {
        const int q = item / axes[3 * k], c = item - q * axes[3 * k];
        at.x += (long)c * axes[3 * k + 1];
        at.y += (long)c * axes[3 * k + 2];
        item = q;
    }
    return at;
}

#define PLACES \
    global const uchar *indices, global const int *axes, global const int *coordinates, int rank, int depth, int wide, int inner, \
    int bytes
#define PLACE_NAMES indices, axes, coordinates, rank, depth, wide, inner, bytes

// An index that is outside selects the nearest row.
static void read_span(int begin, int row, global const uchar *x, global uchar *y, int rows, PLACES) {
    COMPILED_ONCE(rows)
    if (row >= rows || begin >= inner) return;
    const long2 at = begin_of(row, axes, rank);
    long from = at.x;
    #pragma nounroll
    for (int k = 0; k < depth; ++k) {
        const int extent = coordinates[2 * k];
        from += clamp(index_at(indices, at.y + k, wide, extent), 0L, (long)(extent - 1)) * coordinates[2 * k + 1];
    }
    copy_elements(x + (from + begin) * bytes, y + ((long)row * inner + begin) * bytes, min(SPAN, inner - begin), bytes);
}

kernel void read_rows(global const uchar *x, global uchar *y, int rows, PLACES) {
    read_span(get_global_id(0) * SPAN, get_global_id(1), x, y, rows, PLACE_NAMES);
}

#define WRITE_PARAMETERS \
    global const uchar *updates, global uchar *y, int lines, int length, int step, int update_step, int reduction, PLACES
#define WRITE_ARGUMENTS updates, y, lines, length, step, update_step, reduction, PLACE_NAMES

// One work-item applies the `length` updates of a line in their order, so that of several to one place the last one wins;
// indices lie `step` apart, updates `update_step`, and both begin at the same element. Updates whose index is outside
// are dropped. reduction: 0 none; of floats 1 sum, 2 product, 3 maximum, 4 minimum.
static void write_span(int begin, int line, WRITE_PARAMETERS) {
    COMPILED_ONCE(lines)
    if (line >= lines || begin >= inner) return;
    const long2 at = begin_of(line, axes, rank);
    const int count = min(SPAN, inner - begin);
    #pragma nounroll
    for (int j = 0; j < length; ++j) {
        long to = at.x;
        int inside = 1;
        #pragma nounroll
        for (int k = 0; k < depth; ++k) {
            const long i = index_at(indices, at.y + (long)j * step + k, wide, coordinates[2 * k]);
            inside &= i >= 0 && i < coordinates[2 * k];
            to += i * coordinates[2 * k + 1];
        }
        if (!inside) continue;
        const long from = at.y + (long)j * update_step + begin;
        if (reduction == 0) {
            copy_elements(updates + from * bytes, y + (to + begin) * bytes, count, bytes);
            continue;
        }
        global float *out = (global float *)y + to + begin;
        #pragma nounroll
        for (int c = 0; c < count; ++c) {
            const float a = out[c], u = ((global const float *)updates)[from + c];
            const float extreme = a != a || (reduction == 3 ? a >= u : a <= u) ? a : u;
            out[c] = reduction == 1 ? a + u : reduction == 2 ? a * u : extreme;
        }
    }
}

kernel void write_rows(WRITE_PARAMETERS) {
    write_span(get_global_id(0) * SPAN, get_global_id(1), WRITE_ARGUMENTS);
}
