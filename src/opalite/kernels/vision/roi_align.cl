// y[r, c, i, j]: mean or maximum of x[images[r], c] at samples in bin (i, j) of region r, in vectors of PACK channels.
//   MAXIMUM   1: the largest of all weighted neighbours of the samples; 0: their mean
//   CHUNK     channel blocks that one work-item computes      INDEX   int or long
//   MOST      samples along an axis of a bin at most
//   POSITION_STORAGE   as STORAGE, of the regions: left, top, right and bottom, before `scale`
// `ratio` samples along each axis of a bin, or, where it is 0, one for each pixel begun. Samples outside the image by more
// than a pixel are 0. `offset` is that of pixels' centres; `least` the smallest extent of a region.
#include "include/stored_positions.cl"

typedef struct {
    POS start, step;
    int count, first, last; // of all samples, from `first` up to `last` lie within a pixel of the image
} Samples;

static inline Samples find_samples(POS low, POS high, POS least, int bin, int bins, int ratio, int size) {
    Samples s;
    const POS extent = fmax(high - low, least), width = extent / bins;
    POS number = ratio;
    if (ratio == 0) { // the least whole number of times `bins` that reaches the extent, however the device divides
        number = fmin(fmax(ceil(width), (POS)0), (POS)MOST);
        if (number > 0 && (number - 1) * bins >= extent) number -= 1;
        if (number * bins < extent && number < (POS)MOST) number += 1;
    }
    s.count = (int)number;
    s.step = width / number;
    s.start = low + bin * width;
    s.first = 0;
    s.last = s.count;
    if (s.step > 0) {
        s.first = (int)fmin(fmax(floor((-1 - s.start) / s.step - 1), (POS)0), number);
        s.last = (int)fmin(fmax(ceil((size - s.start) / s.step + 1), (POS)0), number);
    }
    return s;
}

// The two pixels around a position, and the share of the second; false where it is outside.
static inline bool find_pixels(POS at, int size, int *low, int *high, POS *share) {
    if (!(at >= -1 && at <= size)) return false;
    at = fmax(at, (POS)0);
    *low = min((int)at, size - 1);
    *high = min(*low + 1, size - 1);
    *share = *low < size - 1 ? at - *low : 0;
    return true;
}

kernel void roi_align(
    global const REAL *x, global const POSITION *regions, global const INDEX *images, global REAL *y, int items, int rows,
    int columns, int chunks, int blocks, int count, int height, int width, int ratio, float scale, float offset, float least
) {
#pragma OPENCL FP_CONTRACT OFF
    const int id = get_global_id(0);
    if (id >= items) return;
    const int bins = rows * columns, bin = id % bins, group = id / bins, chunk = group % chunks, r = group / chunks;
    POS edge[4];
    for (int k = 0; k < 4; ++k) edge[k] = LOAD_POSITION(regions, 4 * (size_t)r + k) * scale - offset;
    const Samples down = find_samples(edge[1], edge[3], least, bin / columns, rows, ratio, height);
    const Samples along = find_samples(edge[0], edge[2], least, bin % columns, columns, ratio, width);
    const size_t plane = (size_t)height * width;
    const int image = (int)clamp(images[r], (INDEX)0, (INDEX)(count - 1));
    const int first = chunk * CHUNK, own = min(CHUNK, blocks - first);
    global const REAL *from = x + ((size_t)image * blocks + first) * plane * PACK;
    ACCV sum[CHUNK];
    for (int b = 0; b < CHUNK; ++b) sum[b] = (ACCV)(0);
    long seen = 0;
    for (int i = down.first; i < down.last; ++i) {
        int top, bottom;
        POS v;
        if (!find_pixels(down.start + (i + (POS)0.5) * down.step, height, &top, &bottom, &v)) continue;
        for (int j = along.first; j < along.last; ++j) {
            int left, right;
            POS h;
            if (!find_pixels(along.start + (j + (POS)0.5) * along.step, width, &left, &right, &h)) continue;
            const ACC a = (1 - v) * (1 - h), b = (1 - v) * h, c = v * (1 - h), d = v * h;
            const size_t nw = (size_t)(top * width + left) * PACK, ne = (size_t)(top * width + right) * PACK;
            const size_t sw = (size_t)(bottom * width + left) * PACK, se = (size_t)(bottom * width + right) * PACK;
            for (int k = 0; k < own; ++k) {
                global const REAL *p = from + k * plane * PACK;
                const ACCV p0 = a * LOADV(p, nw), p1 = b * LOADV(p, ne), p2 = c * LOADV(p, sw), p3 = d * LOADV(p, se);
#if MAXIMUM
                const ACCV best = fmax(fmax(p0, p1), fmax(p2, p3));
                sum[k] = seen ? fmax(sum[k], best) : best;
#else
                sum[k] += p0 + p1 + p2 + p3;
#endif
            }
            ++seen;
        }
    }
    const long all = (long)down.count * along.count;
    for (int k = 0; k < own; ++k) {
#if MAXIMUM
        const ACCV found = seen < all ? fmax(sum[k], (ACCV)(0)) : sum[k];
#else
        const ACCV found = sum[k] / (ACC)max(all, 1L);
#endif
        STOREV(y, (((size_t)r * blocks + first + k) * bins + bin) * PACK, found);
    }
}
