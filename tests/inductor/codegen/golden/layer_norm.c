// var_mean, rsqrt, add, mul_1, mul, sub
void k0(const float* restrict in0, const float* restrict in1, float* restrict out0) {
#pragma omp parallel for schedule(static)
  for (int p0 = 0; p0 < 64; p0++) {
    float acc1 = 0.0f;
    float acc1_l[32];
    for (int l = 0; l < 32; l++) acc1_l[l] = 0.0f;
    for (int u1 = 0; u1 < 128; u1 += 32) {
#pragma omp simd
      for (int r0 = u1; r0 < u1 + 32; r0++) {
        const float v2 = in0[128*p0 + r0];
        acc1_l[r0 - u1] = (v2 + acc1_l[r0 - u1]);
      }
    }
#pragma omp simd reduction(+:acc1)
    for (int l = 0; l < 32; l++) {
      acc1 = (acc1 + acc1_l[l]);
    }
    const float v1r = acc1;
    const float v3 = v1r / 128.0f;
    float acc7 = 0.0f;
    float acc7_l[32];
    for (int l = 0; l < 32; l++) acc7_l[l] = 0.0f;
    for (int u4 = 0; u4 < 128; u4 += 32) {
#pragma omp simd
      for (int r0 = u4; r0 < u4 + 32; r0++) {
        const float v5 = in0[128*p0 + r0];
        const float v6 = v5;
        const float v7 = v6 - v3;
        const float v8 = v7 * v7;
        acc7_l[r0 - u4] = (v8 + acc7_l[r0 - u4]);
      }
    }
#pragma omp simd reduction(+:acc7)
    for (int l = 0; l < 32; l++) {
      acc7 = (acc7 + acc7_l[l]);
    }
    const float v7r = acc7;
    const float v9 = v7r / 128.0f;
    const float v10 = v9 + 9.999999747378752e-06f;
    const float v11 = 1 / __builtin_sqrtf(v10);
#pragma omp simd
    for (int r0 = 0; r0 < 128; r0++) {
      const float v12 = in0[128*p0 + r0];
      const float v13 = v12 - v3;
      const float v14 = v13 * v11;
      const float v15 = in1[r0];
      const float v16 = v14 * v15;
      out0[128*p0 + r0] = v16;
    }
  }
}
