// Greedy non-maximum suppression; needs include/ordering_and_heap.cl (LARGEST, best on top) in front.
//   centred      boxes are x, y of the centre, width, height; else y, x of two opposite corners
//   has_least    only scores above `threshold` take part; else all
// First nms_heap or nms_rounds finds the boxes kept for each batch entry and class: `kept` rows of `most` box numbers and
// their `counts`; then nms_offsets and nms_write put them together in order.
#pragma OPENCL FP_CONTRACT OFF

typedef struct {
    ACC low0, low1, high0, high1;
} Box;

static inline Box load_box(global const REAL *boxes, size_t i, int centred) {
    const ACC a = LOAD(boxes, 4 * i), b = LOAD(boxes, 4 * i + 1), c = LOAD(boxes, 4 * i + 2), d = LOAD(boxes, 4 * i + 3);
    Box box;
    if (centred) {
        box.low0 = a - c / 2;
        box.low1 = b - d / 2;
        box.high0 = a + c / 2;
        box.high1 = b + d / 2;
    } else {
        box.low0 = fmin(a, c);
        box.low1 = fmin(b, d);
        box.high0 = fmax(a, c);
        box.high1 = fmax(b, d);
    }
    return box;
}

// Whether intersection / union exceeds `limit`; boxes without area overlap nothing.
static inline int overlap(Box a, Box b, ACC limit) {
    const ACC side0 = fmin(a.high0, b.high0) - fmax(a.low0, b.low0);
    const ACC side1 = fmin(a.high1, b.high1) - fmax(a.low1, b.low1);
    if (!(side0 > 0) || !(side1 > 0)) return 0;
    const ACC shared = side0 * side1;
    const ACC area_a = (a.high0 - a.low0) * (a.high1 - a.low1), area_b = (b.high0 - b.low0) * (b.high1 - b.low1);
    const ACC joined = area_a + area_b - shared;
    if (!(shared > 0) || !(area_a > 0) || !(area_b > 0) || !(joined > 0)) return 0;
    // OpenCL's division may be off by some units in the last place: one correction makes ties come out right.
    const ACC ratio = shared / joined;
    return ratio + fma(-ratio, joined, shared) / joined > limit;
}

#define TAKES_PART(i) (!has_least || LOAD(line, i) > threshold)

#ifdef WG
// One work-group for each class: in every round drop what the last kept box overlaps and keep the best of the rest.
kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void nms_rounds(
    global const REAL *boxes, global const REAL *scores, global int *candidates, global int *kept, global int *counts,
    int classes, int size, int most, int centred, int has_least, ACC limit, ACC threshold
) {
    local int found, best[WG];
    local CODE best_code[WG];
    const int me = get_local_id(0), id = get_group_id(0);
    global const REAL *line = scores + (size_t)id * size;
    global const REAL *own_boxes = boxes + (size_t)(id / classes) * size * 4;
    global int *left = candidates + (size_t)id * size;
    if (me == 0) found = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = me; i < size; i += WG) {
        if (TAKES_PART(i)) left[atomic_inc(&found)] = i;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    int n = 0, last = -1;
    while (n < most) {
        int mine = -1;
        CODE code = 0;
        Box box;
        if (last >= 0) box = load_box(own_boxes, last, centred);
        for (int j = me; j < found; j += WG) {
            const int i = left[j];
            if (i < 0) continue;
            if (last >= 0 && (i == last || overlap(box, load_box(own_boxes, i, centred), limit))) {
                left[j] = -1;
                continue;
            }
            const CODE c = rank_code(line, i);
            if (mine < 0 || ranks_before(c, i, code, mine)) {
                mine = i;
                code = c;
            }
        }
        best[me] = mine;
        best_code[me] = code;
        for (int half_ = WG / 2; half_ > 0; half_ /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            const int other = me + half_;
            if (me < half_ && best[other] >= 0 &&
                (best[me] < 0 || ranks_before(best_code[other], best[other], best_code[me], best[me]))) {
                best[me] = best[other];
                best_code[me] = best_code[other];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        last = best[0];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (last < 0) break;
        if (me == 0) kept[(size_t)id * most + n] = last;
        ++n;
    }
    if (me == 0) counts[id] = n;
}

#else
// One work-item for each class: candidates leave a heap in order of score. The corners and areas of the boxes that are kept
// stand in five rows of `room` numbers, whole vectors, so that a candidate meets PACK of them at once; which of those it
// overlaps is then decided exactly.
#define AT(row, j) ((row) * room + (j))
static inline int overlaps_kept(Box box, global const REAL *boxes, global const int *own, global const ACC *corners, int room,
                                int n, int centred, ACC limit) {
    const ACC area = (box.high0 - box.low0) * (box.high1 - box.low1);
    for (int j = 0; j < n; j += PACK) {
        const ACCV side0 = fmin((ACCV)box.high0, VLOAD(PACK, 0, corners + AT(2, j)))
            - fmax((ACCV)box.low0, VLOAD(PACK, 0, corners + AT(0, j)));
        const ACCV side1 = fmin((ACCV)box.high1, VLOAD(PACK, 0, corners + AT(3, j)))
            - fmax((ACCV)box.low1, VLOAD(PACK, 0, corners + AT(1, j)));
        const ACCV shared = fmax(side0, (ACCV)0) * fmax(side1, (ACCV)0);
        const ACCV joined = (ACCV)area + VLOAD(PACK, 0, corners + AT(4, j)) - shared;
        // A hair more than the limit asks for, so that no rounding lets an overlap through.
        if (!any(shared * (ACC)1.0001f > limit * joined)) continue;
        for (int k = j; k < min(j + PACK, n); ++k) {
            if (overlap(box, load_box(boxes, own[k], centred), limit)) return 1;
        }
    }
    return 0;
}

static inline void keep_corners(Box box, global ACC *corners, int room, int n) {
    if (n % PACK == 0) {
        for (int row = 0; row < 5; ++row) VSTORE(PACK, (ACCV)0, 0, corners + AT(row, n));
    }
    corners[AT(0, n)] = box.low0;
    corners[AT(1, n)] = box.low1;
    corners[AT(2, n)] = box.high0;
    corners[AT(3, n)] = box.high1;
    corners[AT(4, n)] = (box.high0 - box.low0) * (box.high1 - box.low1);
}

kernel void nms_heap(
    global const REAL *boxes, global const REAL *scores, global int *candidates, global int *kept, global int *counts,
    global ACC *corners, int lines, int classes, int size, int most, int room, int centred, int has_least, ACC limit,
    ACC threshold
) {
    const int id = get_global_id(0);
    if (id >= lines) return;
    global const REAL *line = scores + (size_t)id * size;
    global const REAL *own_boxes = boxes + (size_t)(id / classes) * size * 4;
    global int *heap = candidates + (size_t)id * size;
    global int *own = kept + (size_t)id * most;
    global ACC *own_corners = corners + (size_t)id * 5 * room;
    int left = 0, n = 0;
    for (int i = 0; i < size; ++i) {
        if (TAKES_PART(i)) heap[left++] = i;
    }
    for (int i = left / 2 - 1; i >= 0; --i) sift_down(heap, i, left, line, 1);
    while (left > 0 && n < most) {
        const int next = heap[0];
        heap[0] = heap[--left];
        if (left > 0) sift_down(heap, 0, left, line, 1);
        const Box box = load_box(own_boxes, next, centred);
        if (overlaps_kept(box, own_boxes, own, own_corners, room, n, centred, limit)) continue;
        keep_corners(box, own_corners, room, n);
        own[n++] = next;
    }
    counts[id] = n;
}
#endif

// offsets[i] = rows before line i; `count` their total.
kernel void nms_offsets(global const int *counts, global int *offsets, global long *count, int lines) {
    if (get_global_id(0) > 0) return;
    int total = 0;
    for (int i = 0; i < lines; ++i) {
        offsets[i] = total;
        total += counts[i];
    }
    *count = total;
}

// The rows of all lines one after another, then -1.
kernel void nms_write(
    global const int *kept, global const int *counts, global const int *offsets, global const long *count, global long *rows,
    int items, int classes, int most
) {
    const int id = get_global_id(0);
    if (id >= items) return;
    const int line = id / most, j = id - line * most;
    if (j < counts[line]) {
        const size_t row = offsets[line] + j;
        rows[3 * row] = line / classes;
        rows[3 * row + 1] = line % classes;
        rows[3 * row + 2] = kept[id];
    }
    if (id >= *count) {
        for (int k = 0; k < 3; ++k) rows[3 * (size_t)id + k] = -1;
    }
}
