// y = expr(x, ...) on images: the expression is the node's epilogue, applied to a texel of x.
// Grid: blocks * width, rows = batch * height.
kernel void image_elementwise(read_only image2d_t x, write_only image2d_t y, int channels, int blocks, int height, int width,
                              int rows EPILOGUE_PARAMS) {
    const int at = get_global_id(0), row = get_global_id(1);
    if (at >= blocks * width || row >= rows) return;
    const int n = row / height, block = at / width;
    const float4 v = EPILOGUE(READ(x, at, row), n, block, row - n * height, at - block * width, blocks, height, width);
    WRITE(y, at, row, MASK_LANES(v, channels - block * 4));
}
