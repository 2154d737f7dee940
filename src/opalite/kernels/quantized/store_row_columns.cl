// Statements that store columns low to before high of row r of y from the floats `results`, through the epilogue. One loop for
// vectors and single columns, so that the epilogue is compiled once.
        #pragma unroll 1
        for (int c = low; c < high;) {
            if (c + PACK <= high) {
                const ACCV out = EPILOGUE(*(const FLOATS *)(results + (c - low)), r, c, M, N);
                STOREV(y, (size_t)r * N + c, out);
                c += PACK;
            } else {
                const ACC out = EPILOGUE1(results[c - low], r, c, M, N);
                STORE(y, (size_t)r * N + c, out);
                ++c;
            }
        }
