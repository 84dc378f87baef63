// sum_1
void k0(const float* restrict in0, float* restrict out0) {
  float acc1[128] __attribute__((aligned(64)));
  for (int l = 0; l < 128; l++) acc1[l] = 0.0f;
  for (int r0 = 0; r0 < 64; r0++) {
#pragma omp simd
    for (int p0 = 0; p0 < 128; p0++) {
      const float v1 = in0[128*r0 + p0];
      acc1[p0] = (v1 + acc1[p0]);
    }
  }
#pragma omp simd
  for (int p0 = 0; p0 < 128; p0++) {
    out0[p0] = acc1[p0];
  }
}
