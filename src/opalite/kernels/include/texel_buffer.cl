// Packed constants of 16-byte elements, read through the texture cache where TEXELS: texels of an image over their buffer.
//   QUADS(name)        the parameter
//   READ_QUAD(name, i) element i
#ifndef TEXELS
#define TEXELS 0
#endif
#if TEXELS
#define QUADS(name) read_only image1d_buffer_t name
#define READ_QUAD(name, i) read_imageui(name, (int)(i))
#else
#define QUADS(name) global const uint4 *restrict name
#define READ_QUAD(name, i) ((name)[i])
#endif
