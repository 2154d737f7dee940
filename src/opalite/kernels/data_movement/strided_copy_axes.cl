// Up to eight outer axes of a strided copy, as kernel parameters: extent e, strides xs and ys, outermost first.  Needs AXES.
//   AXIS_PARAMS          those parameters, each with a leading comma
//   FIND_LINE(row)       adds the offsets of line number `row` to `from` and `to`
#define AXIS_PARAMS_0
#define AXIS_PARAMS_1 , int e0, long xs0, long ys0
#define AXIS_PARAMS_2 AXIS_PARAMS_1, int e1, long xs1, long ys1
#define AXIS_PARAMS_3 AXIS_PARAMS_2, int e2, long xs2, long ys2
#define AXIS_PARAMS_4 AXIS_PARAMS_3, int e3, long xs3, long ys3
#define AXIS_PARAMS_5 AXIS_PARAMS_4, int e4, long xs4, long ys4
#define AXIS_PARAMS_6 AXIS_PARAMS_5, int e5, long xs5, long ys5
#define AXIS_PARAMS_7 AXIS_PARAMS_6, int e6, long xs6, long ys6
#define AXIS_PARAMS_8 AXIS_PARAMS_7, int e7, long xs7, long ys7
#define AXIS_PARAMS CAT(AXIS_PARAMS_, AXES)

#define AXIS_STEP(a) { const int c = rest % e##a; rest /= e##a; from += c * xs##a; to += c * ys##a; }
#define AXIS_STEPS_0
#define AXIS_STEPS_1 AXIS_STEP(0)
#define AXIS_STEPS_2 AXIS_STEP(1) AXIS_STEPS_1
#define AXIS_STEPS_3 AXIS_STEP(2) AXIS_STEPS_2
#define AXIS_STEPS_4 AXIS_STEP(3) AXIS_STEPS_3
#define AXIS_STEPS_5 AXIS_STEP(4) AXIS_STEPS_4
#define AXIS_STEPS_6 AXIS_STEP(5) AXIS_STEPS_5
#define AXIS_STEPS_7 AXIS_STEP(6) AXIS_STEPS_6
#define AXIS_STEPS_8 AXIS_STEP(7) AXIS_STEPS_7
#define FIND_LINE(row) { int rest = row; CAT(AXIS_STEPS_, AXES) (void)rest; }
