// amax, exp, sub, sum_1, div
void k0(const float* restrict in0, float* restrict out0) {
#pragma omp parallel for schedule(static)
  for (int p0 = 0; p0 < 64; p0++) {
    float row3[128] __attribute__((aligned(64)));
    float acc1 = -__builtin_inff();
    int acc1_nan = 0;
    float acc1_l[32];
    for (int l = 0; l < 32; l++) acc1_l[l] = -__builtin_inff();
    for (int u1 = 0; u1 < 128; u1 += 32) {
#pragma omp simd
      for (int r0 = u1; r0 < u1 + 32; r0++) {
        const float v2 = in0[128*p0 + r0];
        acc1_l[r0 - u1] = (v2 > acc1_l[r0 - u1] || v2 != v2 ? v2 : acc1_l[r0 - u1]);
      }
    }
#pragma omp simd reduction(max:acc1) reduction(|:acc1_nan)
    for (int l = 0; l < 32; l++) {
      acc1 = acc1_l[l] > acc1 ? acc1_l[l] : acc1;
      acc1_nan |= acc1_l[l] != acc1_l[l];
    }
    const float v1r = (acc1_nan ? __builtin_nanf("") : acc1);
    float acc4 = 0.0f;
#pragma omp simd reduction(+:acc4)
    for (int r0 = 0; r0 < 128; r0++) {
      const float v3 = in0[128*p0 + r0];
      const float v4 = v3 - v1r;
      const float v5 = mp_expf(v4);
      row3[r0] = v5;
      acc4 = (acc4 + v5);
    }
    const float v4r = acc4;
#pragma omp simd
    for (int r0 = 0; r0 < 128; r0++) {
      const float v6 = row3[r0] / v4r;
      out0[128*p0 + r0] = v6;
    }
  }
}
