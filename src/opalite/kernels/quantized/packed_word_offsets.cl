// Addresses of the words of a low-bit matrix in panels of WIDTH columns (pack_low_bit.py): [ceil(words / DEEP)][WIDTH][DEEP].
//   DEEP   consecutive words of a column stored together
//   PANEL_AT(panel, words)   index of a panel's first word, for columns of `words` words
//   WORD_AT(w, lane)         from there to word w of column `lane`
#ifndef DEEP
#define DEEP 1
#endif
#define PANEL_AT(panel, words) ((size_t)(panel) * (((words) + DEEP - 1) / DEEP) * WIDTH * DEEP)
#define WORD_AT(w, lane) (((size_t)((w) / DEEP) * WIDTH + (lane)) * DEEP + (w) % DEEP)
