// Where groups of `own_in` and `own_out` channels count as one because they fill no blocks (BANDED), a tile whose first
// output channel is `from` and whose last is before `to` meets input channels BAND_BEGIN to BAND_END of its group alone.
#ifndef BANDED
#define BANDED 0
#endif
#if BANDED
#define BAND_PARAMS int own_in, int own_out,
#define BAND_BEGIN(from) ((from) / own_out * own_in)
#define BAND_END(to, all) ((((to) - 1) / own_out + 1) * own_in)
#else
#define BAND_PARAMS
#define BAND_BEGIN(from) 0
#define BAND_END(to, all) (all)
#endif
