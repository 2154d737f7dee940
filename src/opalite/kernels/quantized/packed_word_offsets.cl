// Where panels of WIDTH columns hold the words of a constant matrix of a few bits (words.py): [ceil(words / DEEP)][WIDTH][DEEP].
//   DEEP   neighbouring words of a column that lie side by side
//   PANEL_AT(panel, words)   index of a panel's first word, columns having so many words
//   WORD_AT(w, lane)         from there to word w of column `lane`
#ifndef DEEP
#define DEEP 1
#endif
#define PANEL_AT(panel, words) ((size_t)(panel) * (((words) + DEEP - 1) / DEEP) * WIDTH * DEEP)
#define WORD_AT(w, lane) (((size_t)((w) / DEEP) * WIDTH + (lane)) * DEEP + (w) % DEEP)
