// A plain RNN, forward, without optional inputs: the parameters that all kernels of recurrent layers have.
#define KIND 2
#define RESET_LATE 0
#define COUPLED 0
#define ROUNDS 0
#define BACKWARD 0
#define HAS_BIAS 0
#define HAS_LENS 0
#define HAS_H0 0
#define HAS_C0 0
#define HAS_PEEP 0
#define ACT(i, v, d) tanh(v)
