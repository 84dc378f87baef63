// add
void k0(const float* restrict in0, const float* restrict in1, float* restrict out0) {
  for (int t = 0; t < 64; t += 16) {
    for (int b = 0; b < 128; b += 64) {
      float tile1[1024] __attribute__((aligned(64)));
      mp_turn(in1 + 64*b + t, 64, tile1, t + 16 - t, b + 64 - b);
      for (int p0 = t; p0 < t + 16; p0++) {
#pragma omp simd
        for (int p1 = b; p1 < b + 64; p1++) {
          const float v1 = in0[128*p0 + p1];
          const float v2 = v1 + tile1[(p0 - t)*64 + p1 - b];
          out0[128*p0 + p1] = v2;
        }
      }
    }
  }
}
