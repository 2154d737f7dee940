// y[r, c, i, j]: the largest element of bin (i, j) of region r, whose corners are whole pixels after `scale`; 0 in an empty
// bin.
//   FARTHEST   corners are clamped to it
//   POSITION_STORAGE   as STORAGE, of the regions: image, left, top, right and bottom
#include "include/stored_positions.cl"

static inline int find_corner(float at, float scale) {
    at = isnan(at) ? 0 : fmin(fmax(at * scale, -(float)FARTHEST), (float)FARTHEST);
    return (int)copysign(floor(fabs(at) + 0.5f), at);
}

// First pixel of a bin and the one after its last, within an axis of `size`.
static inline int2 find_bin(int first, int last, int bin, int bins, int size) {
#pragma OPENCL FP_CONTRACT OFF
    const float whole = max(last - first + 1, 1);
    float extent = whole / bins;
    extent += fma(-extent, (float)bins, whole) / bins; // rounded as IEEE does, however the device divides
    const int from = first + (int)floor(bin * extent), to = first + (int)ceil((bin + 1) * extent);
    return (int2)(clamp(from, 0, size), clamp(to, 0, size));
}

kernel void roi_pool(
    global const REAL *x, global const POSITION *regions, global REAL *y, int items, int rows, int columns, int channels,
    int count, int height, int width, float scale
) {
    const int id = get_global_id(0);
    if (id >= items) return;
    const int bin = id % (rows * columns), group = id / (rows * columns), c = group % channels, r = group / channels;
    const size_t own = 5 * (size_t)r;
    const float number = LOAD_POSITION(regions, own);
    const int image = (int)fmin(fmax(isnan(number) ? 0 : number, 0.0f), (float)(count - 1));
    int corners[4];
    for (int k = 0; k < 4; ++k) corners[k] = find_corner(LOAD_POSITION(regions, own + 1 + k), scale);
    const int2 down = find_bin(corners[1], corners[3], bin / columns, rows, height);
    const int2 along = find_bin(corners[0], corners[2], bin % columns, columns, width);
    global const REAL *plane = x + ((size_t)image * channels + c) * height * width;
    ACC best = 0;
    bool seen = false;
    for (int i = down.x; i < down.y; ++i) {
        for (int j = along.x; j < along.y; ++j) {
            const ACC v = LOAD(plane, (size_t)i * width + j);
            best = seen && best >= v ? best : v;
            seen = true;
        }
    }
    STORE(y, id, best);
}
