"""C for products with packed weights: linear layers and convolutions of images in channels-last memory, bias, residual and activation in the same pass.

One library for all shapes, compiled once. The weight is a matrix of (taps x channels, columns), packed in panels of 16 columns, so that the inner loop reads it
in order; the image is read in place, through a pointer for each (pixel, tap), so that nothing is unfolded and padding costs no copy (the "indirect"
convolution: Dukhan, 2019; the loop order: Goto and van de Geijn, 2008). A tile of 6 rows x 16 columns (AVX-512: 12 x 32) stays in registers over ``DEPTH`` terms.
A depthwise convolution multiplies where a product adds up over channels: the same tile, without the loop over them.
Measured on 512x256 @ 256x1024, one thread of a Zen 3 (peak 102 GFlop/s): 92 GFlop/s, MKL 83, oneDNN 75; on 3x3 convolutions 85 against 68. With
AVX-512 (peak 241): 211 GFlop/s, MKL 205; on a 3x3 convolution of 4x4 places and 512 channels 207, oneDNN 129.
Upstream: ``torch._inductor.codegen.cpp_gemm_template`` and ``cpp_micro_gemm``.
"""
from __future__ import annotations

from .c_openmp_prelude import prelude

PANEL = 16
"""Columns of a panel of the packed weight."""
GEOMETRY = ("images", "height", "width", "out_height", "out_width", "taps_high", "taps_wide", "stride_high", "stride_wide", "pad_high", "pad_wide",
            "step_high", "step_wide", "image_stride", "row_stride", "pixel_stride", "channels", "columns", "out_stride", "depthwise", "activation")
"""The fields of ``geometry``, each an int64: sizes in elements; ``step``: dilation; ``out_stride``: between pixels of the result and of the residual;
``depthwise``: 1 where each column is made of its own channel."""
ACTIVATIONS = {  # name -> the expression of y, with numbers s[0], s[1]
    "none": "",  # the first two happen in registers
    "relu": "",
    "hardtanh": "y < s[0] ? s[0] : y > s[1] ? s[1] : y",
    "leaky_relu": "y > 0.0f ? y : y * s[0]",
    "hardsigmoid": "GATE(y) * (1.0f / 6.0f)",
    "hardswish": "y * GATE(y) * (1.0f / 6.0f)",
    "sigmoid": "1.0f / (1.0f + mp_expf(-y))",
    "tanh": "mp_tanhf(y)",
    "swish": "y / (1.0f + mp_expf(-y))",
    "gelu": "y * 0.5f * (1.0f + mp_erff(y * 0.70710678f))",
}

VECTORS_OF_FLOATS = """
#ifdef __AVX512F__
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
#define WORK_FOR_THREADS 200000 /* multiplications */
#define ALWAYS static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t bits __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#ifndef __has_builtin
#define __has_builtin(x) 0
#endif
#if __has_builtin(__builtin_elementwise_fma)
#define MULTIPLY_ADD(a, b, c) __builtin_elementwise_fma(a, b, c)
#elif defined(__AVX512F__)
#define MULTIPLY_ADD(a, b, c) (vec)__builtin_ia32_vfmaddps512_mask(a, b, c, (uint16_t)-1, 4)
#elif defined(__FMA__)
#define MULTIPLY_ADD(a, b, c) (vec)__builtin_ia32_vfmaddps256(a, b, c)
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif
"""
"""What libraries of products are written with: vectors, one rounding for a multiplication and an addition where the CPU has that."""

_TOP = """
#ifdef __AVX512F__
#define ROWS 12
#define WIDE 2 /* panels of a tile: 12 loads of a number of the image serve 24 multiplications; with one panel loads are what takes the time */
#define DEPTH 256 /* terms summed before the next panels: 2 x 16 x 256 floats stay in the first cache */
#else
#define ROWS 6
#define WIDE 1
#define DEPTH 384
#endif
#define PANEL 16
#define THIRD (ROWS / 3)
#define VECTORS (PANEL / LANES)
#define BLOCK 192 /* rows of one block: with 384 terms each they stay in the second cache */
#define MOST_TAPS 16
#define EACH_BLOCK 48 /* rows of a block of a depthwise convolution: the pointers of 9 taps stay in the first cache */
#define EACH_TAPS 49
#define GATE(y) ((y) + 3.0f < 0.0f ? 0.0f : (y) + 3.0f > 6.0f ? 6.0f : (y) + 3.0f)
"""

_TILE = """
typedef struct { const float *bias, *other; int relu; } ending; /* what is done to a tile when its last terms are summed */

ALWAYS void begun(const int rows, const int vectors, vec acc[ROWS][WIDE * VECTORS], const float *o, int64_t stride) {
  UNROLL for (int i = 0; i < rows; i++)
    UNROLL for (int v = 0; v < vectors; v++) {
      __builtin_prefetch(o + i * stride + v * LANES, 1); /* to be here when it is written */
      acc[i][v] = (vec){0};
    }
}

/* what was summed before is added last: sums of sums are more exact than one long sum */
ALWAYS void ended(const int rows, const int vectors, vec acc[ROWS][WIDE * VECTORS], float *o, int64_t stride, int first, const ending *end) {
  if (!first)
    UNROLL for (int i = 0; i < rows; i++)
      UNROLL for (int v = 0; v < vectors; v++) acc[i][v] += *(const vec *)(o + i * stride + v * LANES);
  if (end && end->bias)
    UNROLL for (int i = 0; i < rows; i++)
      UNROLL for (int v = 0; v < vectors; v++) acc[i][v] += *(const vec *)(end->bias + v * LANES);
  if (end && end->other)
    UNROLL for (int i = 0; i < rows; i++)
      UNROLL for (int v = 0; v < vectors; v++) acc[i][v] += *(const vec *)(end->other + i * stride + v * LANES);
  if (end && end->relu)
    UNROLL for (int i = 0; i < rows; i++)
      UNROLL for (int v = 0; v < vectors; v++) acc[i][v] = (vec)((bits)acc[i][v] & ~(bits)(acc[i][v] < 0.0f));
  UNROLL for (int i = 0; i < rows; i++)
    UNROLL for (int v = 0; v < vectors; v++) *(vec *)(o + i * stride + v * LANES) = acc[i][v];
}

/* o[i][0..vectors * LANES) (+)= the sum over taps t and channels q of at[i][t][q] * b[t][q][0..PANEL), for a few rows i; the next panel is ``apart`` */
ALWAYS void tile(const int rows, const int vectors, int taps, int64_t channels, const float *const *at, const float *b, int64_t apart, float *o,
                 int64_t stride, int first, const ending *end) {
  vec acc[ROWS][WIDE * VECTORS];
  begun(rows, vectors, acc, o, stride);
  for (int t = 0; t < taps; t++) {
    const float *a[ROWS];
    UNROLL for (int i = 0; i < rows; i++) a[i] = at[i * taps + t];
    for (int64_t q = 0; q < channels; q++, b += PANEL) {
      vec column[WIDE * VECTORS];
      UNROLL for (int v = 0; v < vectors; v++) column[v] = *(const vec *)(b + v / VECTORS * apart + v % VECTORS * LANES);
      UNROLL for (int i = 0; i < rows; i++) {
        const vec row = a[i][q] - (vec){0};
        UNROLL for (int v = 0; v < vectors; v++) acc[i][v] = MULTIPLY_ADD(row, column[v], acc[i][v]);
      }
    }
  }
  ended(rows, vectors, acc, o, stride, first, end);
}

/* o[i][c] (+)= the sum over taps t of at[i][t][skip + c] * b[t][c], for c in 0..16 and ROWS rows i */
static void each_tile(int taps, const float *const *at, int64_t skip, const float *b, float *o, int64_t stride, int first, const ending *end) {
  vec acc[ROWS][WIDE * VECTORS];
  begun(ROWS, VECTORS, acc, o, stride);
  for (int t = 0; t < taps; t++, b += PANEL) {
    vec column[VECTORS];
    UNROLL for (int v = 0; v < VECTORS; v++) column[v] = *(const vec *)(b + v * LANES);
    UNROLL for (int i = 0; i < ROWS; i++) {
      const float *a = at[i * taps + t] + skip;
      UNROLL for (int v = 0; v < VECTORS; v++) acc[i][v] = MULTIPLY_ADD(*(const vec *)(a + v * LANES), column[v], acc[i][v]);
    }
  }
  ended(ROWS, VECTORS, acc, o, stride, first, end);
}

#define TILE(R, V) tile(R, V, taps, channels, at, b, apart, o, stride, first, end)
/* all columns of some panels, for a whole number of thirds of ROWS */
static void whole_tile(int rows, int panels, int taps, int64_t channels, const float *const *at, const float *b, int64_t apart, float *o,
                       int64_t stride, int first, const ending *end) {
  switch (rows / THIRD * WIDE + panels - 1) {
    case WIDE: TILE(THIRD, VECTORS); break;
    case 2 * WIDE: TILE(2 * THIRD, VECTORS); break;
    case 3 * WIDE: TILE(ROWS, VECTORS); break;
#if WIDE > 1
    case WIDE + 1: TILE(THIRD, WIDE * VECTORS); break;
    case 2 * WIDE + 1: TILE(2 * THIRD, WIDE * VECTORS); break;
    case 3 * WIDE + 1: TILE(ROWS, WIDE * VECTORS);
#endif
  }
}

static void part_of_tile(int few, int narrow, int taps, int64_t channels, const float *const *at, const float *b, float *o, int64_t stride, int first,
                         const ending *end) {
  const int64_t apart = 0;
  switch (2 * few + narrow) {
    case 0: TILE(ROWS, VECTORS); break;
    case 1: TILE(ROWS, (VECTORS + 1) / 2); break;
    case 2: TILE(ROWS / 2, VECTORS); break;
    case 3: TILE(ROWS / 2, (VECTORS + 1) / 2);
  }
}
"""

_BLOCK = """
typedef struct { int64_t @fields@; } geometry;
typedef struct { const geometry *g; float s[2]; const float *x, *weight, *bias, *other; float *out; } product;

/* where (pixel, tap) begins in the image, for rows [from, to) and taps [t0, t0 + taps); zeros outside, and for a tile's worth of rows after them */
static void places(const product *p, int64_t from, int64_t to, int t0, int taps, int64_t skip, const float **at, const float *zeros) {
  const geometry *g = p->g;
  int64_t x = from % g->out_width, y = from / g->out_width % g->out_height, image = from / g->out_width / g->out_height;
  int64_t down[EACH_TAPS], right[EACH_TAPS], ahead[EACH_TAPS]; /* of each tap from the window's corner: rows, pixels, elements */
  for (int t = 0; t < taps; t++) {
    down[t] = (t0 + t) / g->taps_wide * g->step_high, right[t] = (t0 + t) % g->taps_wide * g->step_wide;
    ahead[t] = down[t] * g->row_stride + right[t] * g->pixel_stride;
  }
  const int64_t high = (g->taps_high - 1) * g->step_high, wide = (g->taps_wide - 1) * g->step_wide;
  for (int64_t r = from; r < to; r++, at += taps) {
    const int64_t top = y * g->stride_high - g->pad_high, left = x * g->stride_wide - g->pad_wide;
    const int64_t corner = image * g->image_stride + skip + top * g->row_stride + left * g->pixel_stride;
    if (top >= 0 && left >= 0 && top + high < g->height && left + wide < g->width)
      for (int t = 0; t < taps; t++) at[t] = p->x + (corner + ahead[t]);
    else
      for (int t = 0; t < taps; t++) {
        const int64_t h = top + down[t], w = left + right[t];
        at[t] = h >= 0 && h < g->height && w >= 0 && w < g->width ? p->x + (corner + ahead[t]) : zeros;
      }
    if (++x == g->out_width) {
      x = 0;
      if (++y == g->out_height) y = 0, image++;
    }
  }
  for (int t = 0; t < ROWS * taps; t++) at[t] = zeros;
}

static void activated(const product *p, int rows, float *o, int64_t stride) {
  const float s[2] = {p->s[0], p->s[1]};
  switch (p->g->activation) {
@activations@
  }
}

static void copied(float *to, int64_t to_stride, const float *from, int64_t from_stride, int rows, int columns) {
  for (int i = 0; i < rows; i++) for (int c = 0; c < columns; c++) to[i * to_stride + c] = from[i * from_stride + c];
}

/* what lies at rows of pointers, beside each other with zeros after the last column: nothing beyond an image is read */
static void gathered(float *to, const float **pointers, const float *const *at, int64_t skip, int count, int columns) {
  for (int k = 0; k < count; k++, to += PANEL) {
    for (int c = 0; c < PANEL; c++) to[c] = c < columns ? at[k][skip + c] : 0.0f;
    pointers[k] = to;
  }
}

/* a tile that reaches over the result's edge: worked on beside it */
static void edge(const product *p, int rows, int columns, int taps, int64_t channels, const float *const *at, int64_t skip, const float *b,
                 int64_t start, int first, const ending *end) {
  const int64_t stride = p->g->out_stride;
  float mine[ROWS * PANEL] = {0}, bias[PANEL] = {0}, other[ROWS * PANEL] = {0};
  ending here;
  if (!first) copied(mine, PANEL, p->out + start, stride, rows, columns);
  if (end) {
    here = (ending){end->bias ? bias : 0, end->other ? other : 0, end->relu};
    if (end->bias) copied(bias, PANEL, end->bias, PANEL, 1, columns);
    if (end->other) copied(other, PANEL, end->other, stride, rows, columns);
  }
  if (p->g->depthwise) {
    float near[ROWS * EACH_TAPS * PANEL];
    const float *pointers[ROWS * EACH_TAPS];
    gathered(near, pointers, at, skip, ROWS * taps, columns);
    each_tile(taps, pointers, 0, b, mine, PANEL, first, end ? &here : 0);
  } else
    part_of_tile(rows <= ROWS / 2, columns <= PANEL / 2, taps, channels, at, b, mine, PANEL, first, end ? &here : 0);
  if (end && p->g->activation > 1) activated(p, rows, mine, PANEL);
  copied(p->out + start, stride, mine, PANEL, rows, columns);
}

/* a tile of rows from ``r`` and of ``panels`` from ``j``, whose weights begin at ``b``, those of the next panel ``apart`` from them */
ALWAYS void tile_at(const product *p, int64_t r, int64_t to, int64_t j, int panels, int taps, int64_t channels, const float *const *at, int64_t skip,
                    const float *b, int64_t apart, int first, int last) {
  const geometry *g = p->g;
  const int64_t left = g->columns - j * PANEL, start = r * g->out_stride + j * PANEL;
  const int rows = (int)(to - r < ROWS ? to - r : ROWS);
  const ending all = {p->bias ? p->bias + j * PANEL : 0, p->other ? p->other + start : 0, g->activation == 1}, *end = last ? &all : 0;
  if (left < panels * PANEL || rows % THIRD || (g->depthwise && rows < ROWS)) {
    for (int k = 0; k < panels; k++) {
      const ending one = {all.bias ? all.bias + k * PANEL : 0, all.other ? all.other + k * PANEL : 0, all.relu};
      const int columns = (int)(left - k * PANEL < PANEL ? left - k * PANEL : PANEL);
      edge(p, rows, columns, taps, channels, at, skip, b + k * apart, start + k * PANEL, first, last ? &one : 0);
    }
    return;
  }
  if (g->depthwise) each_tile(taps, at, skip, b, p->out + start, g->out_stride, first, end);
  else whole_tile(rows, panels, taps, channels, at, b, apart, p->out + start, g->out_stride, first, end);
  if (last && g->activation > 1)
    for (int k = 0; k < panels; k++) activated(p, rows, p->out + start + k * PANEL, g->out_stride);
}

/* all of rows [from, to) and panels [p0, p1) of the result */
static void block(const product *p, int64_t from, int64_t to, int64_t p0, int64_t p1, const float *zeros) {
  const geometry *g = p->g;
  const int all = (int)(g->taps_high * g->taps_wide);
  const int64_t depth = g->channels * all, piece = g->channels < DEPTH ? g->channels : DEPTH;
  int group = (int)(DEPTH / piece);
  group = group > MOST_TAPS ? MOST_TAPS : group > all ? all : group;
  const float *at[(BLOCK + ROWS) * MOST_TAPS];
  for (int t0 = 0; t0 < all; t0 += group)
    for (int64_t skip = 0; skip < g->channels; skip += piece) {
      const int taps = all - t0 < group ? all - t0 : group, first = t0 == 0 && skip == 0;
      const int64_t channels = g->channels - skip < piece ? g->channels - skip : piece;
      const int last = t0 + taps == all && skip + channels == g->channels;
      places(p, from, to, t0, taps, skip, at, zeros);
      for (int64_t j = p0; j < p1; j += WIDE) {
        const int panels = p1 - j < WIDE ? (int)(p1 - j) : WIDE;
        const float *b = p->weight + (j * depth + t0 * g->channels + skip) * PANEL;
        for (int64_t r = from; r < to; r += ROWS)
          tile_at(p, r, to, j, panels, taps, channels, at + (r - from) * taps, 0, b, depth * PANEL, first, last);
      }
    }
}

/* the same of a depthwise convolution; pixels are outside, so that the image is read in order */
static void each_block(const product *p, int64_t from, int64_t to, int64_t p0, int64_t p1, const float *zeros) {
  const int all = (int)(p->g->taps_high * p->g->taps_wide);
  const int64_t piece = DEPTH / PANEL;
  const float *at[(EACH_BLOCK + ROWS) * EACH_TAPS];
  for (int64_t begin = from; begin < to; begin += EACH_BLOCK) {
    const int64_t stop = to - begin < EACH_BLOCK ? to : begin + EACH_BLOCK;
    for (int64_t j0 = p0; j0 < p1; j0 += piece)
      for (int t0 = 0; t0 < all; t0 += EACH_TAPS) {
        const int taps = all - t0 < EACH_TAPS ? all - t0 : EACH_TAPS;
        places(p, begin, stop, t0, taps, j0 * PANEL, at, zeros);
        for (int64_t r = begin; r < stop; r += ROWS)
          for (int64_t j = j0; j < p1 && j < j0 + piece; j++)
            tile_at(p, r, stop, j, 1, taps, 1, at + (r - begin) * taps, (j - j0) * PANEL, p->weight + (j * all + t0) * PANEL, 0, t0 == 0, t0 + taps == all);
      }
  }
}

void products(const int64_t *sizes, const double *numbers, const float *x, const float *weight, const float *bias, const float *other, float *out) {
  const geometry *g = (const geometry *)sizes;
  const product p = {g, {(float)numbers[0], (float)numbers[1]}, x, weight, bias, other, out};
  static const float zeros[DEPTH];
  const int64_t rows = g->images * g->out_height * g->out_width, panels = (g->columns + PANEL - 1) / PANEL;
  const int64_t work = rows * g->columns * g->channels * g->taps_high * g->taps_wide;
  const int64_t threads = work < WORK_FOR_THREADS ? 1 : omp_get_max_threads();
  const int64_t high_tiles = (rows + ROWS - 1) / ROWS;
  int64_t blocks = (rows + BLOCK - 1) / BLOCK;
  blocks = (blocks + threads - 1) / threads * threads; /* as many for each thread */
  blocks = blocks > high_tiles ? high_tiles : blocks;
  if (!blocks) return;
  const int64_t high = (high_tiles + blocks - 1) / blocks * ROWS;
  blocks = (rows + high - 1) / high;
  int64_t groups = blocks < threads ? (threads + blocks - 1) / blocks : 1;
  groups = groups > panels ? panels : groups;
#pragma omp parallel for if(threads > 1) schedule(static)
  for (int64_t k = 0; k < blocks * groups; k++) {
    const int64_t from = k / groups * high, share = k % groups;
    (g->depthwise ? each_block : block)(&p, from, from + high < rows ? from + high : rows, panels * share / groups, panels * (share + 1) / groups, zeros);
  }
}
"""


def source() -> str:
    """The library's text: ``products(geometry, numbers, x, weight, bias or 0, residual or 0, out)``."""
    loop = "    for (int i = 0; i < rows; i++)\n#pragma omp simd\n      for (int c = 0; c < PANEL; c++) {{ const float y = o[i * stride + c]; o[i * stride + c] = {}; }}\n"
    kinds = [f"  case {k}:\n{loop.format(text)}    break;" for k, text in enumerate(ACTIVATIONS.values()) if k > 1]
    text = VECTORS_OF_FLOATS + _TOP + _TILE + _BLOCK.replace("@fields@", ", ".join(GEOMETRY)).replace("@activations@", "\n".join(kinds))
    return prelude(text) + text
