// After reduce/sub_group_fold.cl where the device has block loads (cl_intel_subgroups): the work-items of a sub-group read
// adjacent elements by one instruction, for sums and maxima, which do not ask who has which.
//   BLOCK_LOAD(row)  of the WG * PACK floats from `row` on, which all work-items of the group give, PACK for each of them
//   BLOCKS_FIT       whether sub-groups are whole, so that it may be used
// Needs ROWS 1 and rows of floats in PACK of 2, 4 or 8; undefined elsewhere.
#if WG > 1 && ROWS == 1 && STORAGE == 0 && (PACK == 2 || PACK == 4 || PACK == 8)
#define BLOCKS_FIT (WG % (int)get_max_sub_group_size() == 0)
#define BLOCK_OF(row) ((row) + get_sub_group_id() * get_max_sub_group_size() * PACK)
#define BLOCK_LOAD(row) CAT(as_float, PACK)(CAT(intel_sub_group_block_read, PACK)((global const uint *)BLOCK_OF(row)))
#endif
