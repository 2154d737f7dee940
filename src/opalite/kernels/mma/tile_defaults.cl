// Parameters of mma/mma_tile.cl, which files that include it use before it.
#ifndef WM
#define WM 1
#define WN 1
#define PW 1
#define NW 1
#define SPLIT 4
#define STAGES 2
#endif
