"""C helpers that generated files contain when they use them: no header is parsed but ``stdint.h``.

Names of the C library's vector functions (libmvec) are redeclared with gcc's ``simd`` attribute, which lets loops call them on
whole vectors. ``mp_exp`` is our own: libmvec's slows down tenfold where arguments are -inf (masked softmax).
Upstream: ``torch/csrc/inductor/cpp_prefix.h``.
"""
from __future__ import annotations

import re

HEAD = """#include <stdint.h>
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__)
#if __GLIBC_PREREQ(2, 22)
#define SIMD22 __attribute__((simd("notinbranch"), const))
#endif
#if __GLIBC_PREREQ(2, 35)
#define SIMD35 __attribute__((simd("notinbranch"), const))
#endif
#endif
#ifndef SIMD22
#define SIMD22 __attribute__((const))
#endif
#ifndef SIMD35
#define SIMD35 __attribute__((const))
#endif
#ifdef __FMA__
#define FMAF(a, b, c) __builtin_fmaf(a, b, c)
#define FMA(a, b, c) __builtin_fma(a, b, c)
#else
#define FMAF(a, b, c) ((a) * (b) + (c))
#define FMA(a, b, c) ((a) * (b) + (c))
#endif
"""

_LIBMVEC_22 = "sin cos log".split()
_LIBMVEC_35 = "exp2 expm1 log1p log2 log10 tan asin acos atan sinh cosh asinh acosh atanh erfc".split()
_SCALAR = "lgamma".split()
_LIBMVEC_BINARY = {"pow": "SIMD22", "atan2": "SIMD35", "hypot": "SIMD35", "nextafter": "", "fmod": ""}


def _declarations() -> dict[str, str]:
    out = {}
    for names, mark in ((_LIBMVEC_22, "SIMD22"), (_LIBMVEC_35, "SIMD35"), (_SCALAR, "")):
        for n in names:
            out[n + "f"] = f"{mark} float {n}f(float);".strip()
            out[n] = f"{mark} double {n}(double);".strip()
    for n, mark in _LIBMVEC_BINARY.items():
        out[n + "f"] = f"{mark} float {n}f(float, float);".strip()
        out[n] = f"{mark} double {n}(double, double);".strip()
    return out


HELPERS: dict[str, str] = {
    **_declarations(),
    "idx": """#ifdef WIDE /* some offset needs 64 bits; vectors of 32 bits hold twice as many */
typedef int64_t idx;
typedef uint64_t uidx;
#else
typedef int idx;
typedef unsigned uidx;
#endif""",
    "malloc": "void* malloc(__SIZE_TYPE__);",
    "free": "void free(void*);",
    "omp_get_max_threads": "int omp_get_max_threads(void);",
    "omp_get_thread_num": "int omp_get_thread_num(void);",
    "random_bits": """static inline int32_t random_bits(int64_t seed, int64_t position, uint32_t draw) { /* Philox 4x32-10 */
  uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)((uint64_t)seed >> 32);
  uint32_t a = (uint32_t)(position >> 2), b = (uint32_t)((uint64_t)(position >> 2) >> 32), c = draw, d = 0;
  for (int k = 0; k < 10; k++) {
    const uint64_t p = (uint64_t)0xD2511F53u * a, q = (uint64_t)0xCD9E8D57u * c;
    a = (uint32_t)(q >> 32) ^ b ^ key0, b = (uint32_t)q;
    c = (uint32_t)(p >> 32) ^ d ^ key1, d = (uint32_t)p;
    key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
  }
  const uint32_t words[4] = {a, b, c, d};
  return (int32_t)(words[position & 3] >> 1);
}""",
    "bf16_load": """static inline float bf16_load(uint16_t h) {
  union { uint32_t u; float f; } x = {(uint32_t)h << 16};
  return x.f;
}""",
    "bf16_store": """static inline uint16_t bf16_store(float f) {
  union { float f; uint32_t u; } x = {f};
  const uint32_t r = (x.u + 0x7fffu + ((x.u >> 16) & 1u)) >> 16;
  return (uint16_t)(f != f ? 0x7fc0u : r);
}""",
    "fp16_load": """static inline float fp16_load(uint16_t h) { /* exponents moved by a multiplication, which also serves denormals */
  union { uint32_t u; float f; } x = {((uint32_t)h & 0x7fffu) << 13}, scale = {0x77800000u};
  x.f *= scale.f;
  x.u |= ((uint32_t)h & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  x.u |= ((uint32_t)h & 0x8000u) << 16;
  return x.f;
}""",
    "fp16_store": """static inline uint16_t fp16_store(float f) {
  union { float f; uint32_t u; } x = {f}, tiny;
  const uint32_t sign = (x.u >> 16) & 0x8000u;
  x.u &= 0x7fffffffu;
  tiny.f = x.f + 0.5f; /* aligns the mantissa of a denormal result */
  const uint32_t normal = (x.u - 0x37fff001u + ((x.u >> 13) & 1u)) >> 13;
  const uint32_t small = tiny.u - 0x3f000000u;
  const uint32_t special = x.u > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return (uint16_t)(sign | (x.u >= 0x477ff000u ? special : x.u < 0x38800000u ? small : normal));
}""",
    "mp_turn": """typedef float v8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t v8i __attribute__((vector_size(32)));
typedef float any32 __attribute__((may_alias));
#ifdef __clang__
#define TURN(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define TURN(a, b, ...) __builtin_shuffle(a, b, (v8i){__VA_ARGS__})
#endif
static inline void turn8(const any32* restrict x, int64_t s, any32* restrict o) { /* transposes 8 x 8 elements in registers */
  v8 r[8], q[8];
  for (int k = 0; k < 8; k++) r[k] = *(const v8*)(x + k * s);
  for (int k = 0; k < 8; k += 2) {
    q[k] = TURN(r[k], r[k + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    q[k + 1] = TURN(r[k], r[k + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int k = 0; k < 8; k += 4)
    for (int l = 0; l < 2; l++) {
      r[k + 2 * l] = TURN(q[k + l], q[k + l + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      r[k + 2 * l + 1] = TURN(q[k + l], q[k + l + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int k = 0; k < 4; k++) {
    *(v8*)(o + 64 * k) = TURN(r[k], r[k + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    *(v8*)(o + 64 * (k + 4)) = TURN(r[k], r[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}
static void mp_turn(const void* restrict from, int64_t s, void* restrict to, int rows, int columns) { /* to[r][c] = from[c * s + r] */
  const any32* x = from;
  any32* o = to;
  int c = 0;
  for (; c + 8 <= columns; c += 8) {
    int r = 0;
    for (; r + 8 <= rows; r += 8) turn8(x + c * s + r, s, o + 64 * r + c);
    for (; r < rows; r++) for (int k = c; k < c + 8; k++) o[64 * r + k] = x[k * s + r];
  }
  for (; c < columns; c++) for (int r = 0; r < rows; r++) o[64 * r + c] = x[c * s + r];
}""",
    "mp_expf": """static inline float mp_expf(float x) { /* 2^n e^r, |r| <= ln2/2; relative error 7e-8 */
  float t = x < -104.0f ? 0.0f : x; /* not computed down there: results that underflow are slow */
  t = t > 89.0f ? 89.0f : t;
  union { float f; int32_t i; } k = {FMAF(t, 1.44269504088896341f, 12582912.0f)};
  const float n = k.f - 12582912.0f;
  float r = FMAF(n, -0.693145751953125f, t);
  r = FMAF(n, -1.42860682030941723e-6f, r);
  float p = 1.9875691500e-4f;
  p = FMAF(p, r, 1.3981999507e-3f);
  p = FMAF(p, r, 8.3334519073e-3f);
  p = FMAF(p, r, 4.1665795894e-2f);
  p = FMAF(p, r, 1.6666665459e-1f);
  p = FMAF(p, r, 5.0000001201e-1f);
  p = FMAF(p, r * r, r) + 1.0f;
  const int32_t i = k.i - 0x4b400000, half = i >> 1; /* two factors reach denormals and infinity */
  union { int32_t i; float f; } a = {(half + 127) << 23}, b = {(i - half + 127) << 23};
  return x < -104.0f ? 0.0f : p * a.f * b.f;
}""",
    "mp_exp": """static inline double mp_exp(double x) {
  double t = x < -746.0 ? 0.0 : x;
  t = t > 710.0 ? 710.0 : t;
  union { double f; int64_t i; } k = {FMA(t, 1.4426950408889634074, 6755399441055744.0)};
  const double n = k.f - 6755399441055744.0;
  double r = FMA(n, -6.93147180369123816490e-01, t);
  r = FMA(n, -1.90821492927058770002e-10, r);
  double p = 1.6059043836821613e-10;
  p = FMA(p, r, 2.0876756987868099e-09);
  p = FMA(p, r, 2.5052108385441719e-08);
  p = FMA(p, r, 2.7557319223985888e-07);
  p = FMA(p, r, 2.7557319223985893e-06);
  p = FMA(p, r, 2.4801587301587302e-05);
  p = FMA(p, r, 1.9841269841269841e-04);
  p = FMA(p, r, 1.3888888888888889e-03);
  p = FMA(p, r, 8.3333333333333332e-03);
  p = FMA(p, r, 4.1666666666666664e-02);
  p = FMA(p, r, 1.6666666666666666e-01);
  p = FMA(p, r, 0.5);
  p = FMA(p, r * r, r) + 1.0;
  const int64_t i = k.i - 0x4338000000000000LL, half = (int64_t)((uint64_t)(i + 4096) >> 1) - 2048; /* AVX2 shifts right only unsigned */
  union { int64_t i; double f; } a = {(half + 1023) << 52}, b = {(i - half + 1023) << 52};
  return x < -746.0 ? 0.0 : p * a.f * b.f;
}""",
    "mp_sigmoidf": "static inline float mp_sigmoidf(float x) { return 1.0f / (1.0f + mp_expf(-x)); }",
    "mp_sigmoid": "static inline double mp_sigmoid(double x) { return 1.0 / (1.0 + mp_exp(-x)); }",
    "mp_tanhf": "SIMD35 float tanhf(float);\n#define mp_tanhf tanhf",
    "mp_tanh": "SIMD35 double tanh(double);\n#define mp_tanh tanh",
    "mp_erff": "SIMD35 float erff(float);\n#define mp_erff erff",
    "mp_erf": "SIMD35 double erf(double);\n#define mp_erf erf",
    "mp_floordivf": """static inline float mp_floordivf(float a, float b) { /* Python's floor division */
  if (b == 0) return a / b;
  const float m = fmodf(a, b);
  float q = (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) q -= 1;
  if (q == 0) return __builtin_copysignf(0, a / b);
  const float f = __builtin_floorf(q);
  return q - f > 0.5f ? f + 1 : f;
}""",
    "mp_floordiv": """static inline double mp_floordiv(double a, double b) {
  if (b == 0) return a / b;
  const double m = fmod(a, b);
  double q = (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) q -= 1;
  if (q == 0) return __builtin_copysign(0, a / b);
  const double f = __builtin_floor(q);
  return q - f > 0.5 ? f + 1 : f;
}""",
    "mp_remainderf": """static inline float mp_remainderf(float a, float b) {
  const float m = fmodf(a, b);
  return m != 0 && (b < 0) != (m < 0) ? m + b : m;
}""",
    "mp_remainder": """static inline double mp_remainder(double a, double b) {
  const double m = fmod(a, b);
  return m != 0 && (b < 0) != (m < 0) ? m + b : m;
}""",
    "mp_truncdiv_i": """static inline int64_t mp_truncdiv_i(int64_t a, int64_t b) {
  return b == 0 ? 0 : b == -1 ? (int64_t)(0u - (uint64_t)a) : a / b;
}""",
    "mp_floordiv_i": """static inline int64_t mp_floordiv_i(int64_t a, int64_t b) {
  const int64_t q = mp_truncdiv_i(a, b);
  return b != 0 && b != -1 && a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}""",
    "mp_fmod_i": "static inline int64_t mp_fmod_i(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }",
    "mp_remainder_i": """static inline int64_t mp_remainder_i(int64_t a, int64_t b) {
  const int64_t m = mp_fmod_i(a, b);
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}""",
    "mp_pow_i": """static inline int64_t mp_pow_i(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
  uint64_t r = 1, x = (uint64_t)a;
  for (; b; b >>= 1, x *= x) if (b & 1) r *= x;
  return (int64_t)r;
}""",
    "mp_shl": """static inline int64_t mp_shl(int64_t a, int64_t b, int bits) {
  return b < 0 || b >= bits ? 0 : (int64_t)((uint64_t)a << b);
}""",
    "mp_shr": """static inline int64_t mp_shr(int64_t a, int64_t b, int bits) {
  return b < 0 || b >= bits ? (a < 0 ? -1 : 0) : a >> b;
}""",
    "mp_digamma": """static inline double mp_digamma(double x) {
  if (x == 0) return __builtin_copysign(__builtin_inf(), -x);
  double r = 0;
  if (x < 0) {
    if (x == __builtin_trunc(x)) return __builtin_nan("");
    const double q = 3.14159265358979323846;
    r = -q / tan(q * (x - __builtin_floor(x)));
    x = 1 - x;
  }
  while (x < 10) { r -= 1 / x; x += 1; }
  const double z = 1 / (x * x);
  return r + log(x) - 0.5 / x - z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760))))));
}""",
    "mp_digammaf": "static inline float mp_digammaf(float x) { return (float)mp_digamma(x); }",
    "mp_erfinv": """static inline double mp_erfinv(double y) { /* a start by Winitzki's formula, then Halley steps on erf */
  if (!(y > -1 && y < 1)) return y == 1 ? __builtin_inf() : y == -1 ? -__builtin_inf() : __builtin_nan("");
  const double l = log1p(-y * y), t = 4.3307467508 + l / 2;
  double x = __builtin_copysign(__builtin_sqrt(__builtin_sqrt(t * t - l / 0.147) - t), y);
  for (int k = 0; k < 3; k++) {
    const double e = y >= 0 ? -(erfc(x) - (1 - y)) : erfc(-x) - (1 + y);
    const double s = e / (1.12837916709551257390 * mp_exp(-x * x));
    x -= s / (1 + x * s);
  }
  return x;
}""",
    "mp_erfinvf": "static inline float mp_erfinvf(float y) { return (float)mp_erfinv(y); }",
}
_WORD = re.compile(r"\b[a-z][a-z0-9_]*\b")


def prelude(body: str) -> str:
    """The head of a file with generated functions ``body``: every helper it uses, and those these use, in order."""
    needed: set[str] = set()
    todo = [w for w in set(_WORD.findall(body)) if w in HELPERS]
    while todo:
        name = todo.pop()
        if name not in needed:
            needed.add(name)
            todo += [w for w in set(_WORD.findall(HELPERS[name])) if w in HELPERS and w != name]
    ordered: list[str] = []

    def place(name: str) -> None:
        if name in ordered:
            return
        for w in _WORD.findall(HELPERS[name]):
            if w in needed and w != name:
                place(w)
        ordered.append(name)

    for name in HELPERS:
        if name in needed:
            place(name)
    return HEAD + "\n".join(HELPERS[n] for n in ordered) + ("\n" if ordered else "")
