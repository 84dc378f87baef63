// relu, add
void k0(const float* restrict in0, const float* restrict in1, float* restrict out0) {
  for (int p0 = 0; p0 < 64; p0++) {
#pragma omp simd
    for (int p1 = 0; p1 < 128; p1++) {
      const float v1 = in0[128*p0 + p1];
      const float v2 = in1[p1];
      const float v3 = v1 + v2;
      const float v4 = v3 < 0 ? 0 : v3;
      out0[128*p0 + p1] = v4;
    }
  }
}
