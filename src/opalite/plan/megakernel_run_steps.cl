kernel void run_steps(global const ulong *args, global const uint *shapes, global uint *counters, uint first,
                      uint last, uint workers) {
    walk_steps(args, shapes, counters, first, last, get_group_id(0), workers, 0);
}
kernel void clear_steps(global uint *counters, uint first, uint last) {
    for (uint i = first * ROW; i < last * ROW; i += LINE) counters[i] = 0;
}
