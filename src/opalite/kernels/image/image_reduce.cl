// Reduction of an image's height and width to one texel for each batch and channel block.
//   KIND   0 sum, 1 mean, 2 max, 3 min
//   SIDE   a work-group of SIDE x SIDE work-items shares the positions of one block; a power of two
// Grid: blocks * SIDE, SIDE, batch, in groups of SIDE, SIDE, 1.
#ifndef SIDE
#define SIDE 8
#endif
#if KIND == 2
#define NEUTRAL (-INFINITY)
#define COMBINE(a, b) max(a, b)
#elif KIND == 3
#define NEUTRAL INFINITY
#define COMBINE(a, b) min(a, b)
#else
#define NEUTRAL 0.0f
#define COMBINE(a, b) ((a) + (b))
#endif

kernel __attribute__((reqd_work_group_size(SIDE, SIDE, 1)))
void image_reduce(read_only image2d_t x, write_only image2d_t y, int channels, int blocks, int height,
                  int width EPILOGUE_PARAMS) {
    const int block = get_group_id(0), n = get_group_id(2), column = get_local_id(0), row = get_local_id(1);
    float4 total = (float4)(NEUTRAL);
    for (int h = row; h < height; h += SIDE) {
        // Sums of rows first: fewer rounding errors accumulate in one number.
        float4 line = (float4)(NEUTRAL);
        for (int w = column; w < width; w += SIDE) line = COMBINE(line, READ(x, block * width + w, n * height + h));
        total = COMBINE(total, line);
    }
#if SIDE > 1
    local float4 part[SIDE * SIDE];
    const int item = row * SIDE + column;
    part[item] = total;
    for (int step = SIDE * SIDE / 2; step > 0; step /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < step) part[item] = COMBINE(part[item], part[item + step]);
    }
    if (item > 0) return;
    total = part[0];
#endif
#if KIND == 1
    total /= (float)height * (float)width;
#endif
    total = EPILOGUE(total, n, block, 0, 0, blocks, 1, 1);
    WRITE(y, block, n, MASK_LANES(total, channels - block * 4));
}
