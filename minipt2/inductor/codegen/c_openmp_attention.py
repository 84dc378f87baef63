"""C for attention over float32 numbers: ``softmax(q @ k.T * scale + mask) @ v`` and its gradients, a block of rows at a time.

One library for all shapes, compiled once. A block of scores (48 rows and all columns, fewer rows where there are very many columns) stays in the second
cache from the first product to the last, so that nothing of the size rows x columns is ever written to memory; the backward makes the softmax
again (Dao and others, 2022), from the scores alone: with the logarithm of its divisor weights would be as inexact as large scores are. Whole rows
are at hand, so the largest score needs no second look. The keys (and in the backward the values) are turned over once for each head; the other
operands are read in place, with whatever strides between rows.
A tile of 6 rows x 4 vectors, or 12 x 2 where a head is narrow, stays in registers. Heads are shared out among threads, in the forward blocks of rows too.
Upstream: ``aten/src/ATen/native/cpu/FlashAttentionKernel.cpp``.
"""
from __future__ import annotations

from .c_openmp_prelude import prelude
from .c_openmp_products import VECTORS_OF_FLOATS

FIELDS = ("batch", "heads", "rows", "columns", "width", "causal")
TENSORS = ("q", "k", "v", "out", "lse", "mask", "grad", "dq", "dk", "dv")
"""Whose strides follow ``FIELDS`` among the sizes: of batch, head and row each, in elements, and the mask's of columns (0 or 1) last. 0: not given."""

_TEXT = """
#ifdef __AVX512F__
#define MANY 4
#else
#define MANY 2
#endif
#define GROUP (MANY * LANES)
#define BLOCK 48
#define DEPTH 128 /* terms summed at a time: as many rows of values stay in the first cache while a block goes by */
#define SCORES 131072 /* of a block at most, unless one tile has more: 512 KB */
typedef struct { int64_t batch, head, row; } strides;
typedef struct { int64_t @fields@; strides @tensors@; int64_t mask_column; } sizes;

/* o[i][0..vectors * LANES) (+)= the sum over t of a(i, t) * b[t][0..vectors * LANES) */
ALWAYS void tile(const int rows, const int vectors, int64_t depth, const float *a, int64_t a_row, int64_t a_step, const float *b, int64_t b_step,
                 float *o, int64_t o_row, int add) {
  vec acc[12][MANY];
  UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++) acc[i][v] = (vec){0};
  for (int64_t t = 0; t < depth; t++) {
    vec column[MANY];
    UNROLL for (int v = 0; v < vectors; v++) column[v] = *(const vec *)(b + t * b_step + v * LANES);
    UNROLL for (int i = 0; i < rows; i++) {
      const vec row = a[i * a_row + t * a_step] - (vec){0};
      UNROLL for (int v = 0; v < vectors; v++) acc[i][v] = MULTIPLY_ADD(row, column[v], acc[i][v]);
    }
  }
  UNROLL for (int i = 0; i < rows; i++)
    UNROLL for (int v = 0; v < vectors; v++) {
      vec *to = (vec *)(o + i * o_row + v * LANES);
      if (add) acc[i][v] += *to;
      *to = acc[i][v];
    }
}

#define ROWS_OF(R, V) \\
  for (; i + R <= rows; i += R) tile(R, V, terms, a + i * a_row + t * a_step, a_row, a_step, from, b_step, o + i * o_row + j, o_row, add || t);
/* the same for any number of rows, and of columns a multiple of LANES; b lies in groups of columns, ``b_group`` apart */
static void multiply(int64_t rows, int64_t columns, int64_t depth, const float *a, int64_t a_row, int64_t a_step, const float *b, int64_t b_step,
                     int64_t b_group, float *o, int64_t o_row, int add) {
  for (int64_t t = 0; t < depth; t += DEPTH) {
    const int64_t terms = depth - t < DEPTH ? depth - t : DEPTH;
    for (int64_t j = 0; j < columns;) {
      const float *const from = b + j / GROUP * b_group + j % GROUP + t * b_step;
      int64_t i = 0;
#if MANY > 2
      if (j + MANY * LANES <= columns) {
        ROWS_OF(6, MANY) ROWS_OF(2, MANY) ROWS_OF(1, MANY)
        j += MANY * LANES;
      } else
#define TALL 12
#else
#define TALL 6
#endif
      if (j + 2 * LANES <= columns) {
        ROWS_OF(TALL, 2) ROWS_OF(4, 2) ROWS_OF(1, 2)
        j += 2 * LANES;
      } else {
        ROWS_OF(12, 1) ROWS_OF(4, 1) ROWS_OF(1, 1)
        j += LANES;
      }
    }
  }
}

/* to[c][r] = from[r][c] in groups of r, zeros for r in [rows, filled) */
static void turned(float *to, int64_t filled, const float *from, int64_t row, int64_t rows, int64_t width) {
  for (int64_t r0 = 0; r0 < filled; r0 += GROUP, to += GROUP * width)
    for (int64_t c = 0; c < width; c += 8)
      for (int64_t r = 0; r < GROUP; r++)
        for (int64_t k = c; k < c + 8; k++) to[k * GROUP + r] = r0 + r < rows ? from[(r0 + r) * row + k] : 0.0f;
}

ALWAYS int64_t up(int64_t n) { return (n + LANES - 1) / LANES * LANES; }
ALWAYS int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* the first ``seen`` scores of a row, scaled and with the mask, -inf up to whole vectors: their largest */
static float scaled(float *s, int64_t seen, float scale, const float *mask, int64_t step) {
  const int64_t whole = up(seen);
  float most = -__builtin_inff();
  if (!mask) {
#pragma omp simd
    for (int64_t j = 0; j < whole; j++) s[j] *= scale;
  } else if (step) {
#pragma omp simd
    for (int64_t j = 0; j < seen; j++) s[j] = s[j] * scale + mask[j];
  } else {
#pragma omp simd
    for (int64_t j = 0; j < whole; j++) s[j] = s[j] * scale + *mask;
  }
  for (int64_t j = seen; j < whole; j++) s[j] = -__builtin_inff();
#pragma omp simd reduction(max : most)
  for (int64_t j = 0; j < whole; j++) most = s[j] > most ? s[j] : most;
  return most;
}

/* how many columns some row sees: those after them have a mask of -inf, as in causal attention and in padded texts. One at least */
static int64_t reached(const float *mask, int64_t row, int64_t rows, int64_t columns) {
  int64_t most = 1;
  for (int64_t i = rows - 1; i >= 0; i--) {
    const float *const m = mask + i * row;
    int64_t j = columns;
    for (int hidden = 1; j > most; j -= LANES) {
      const int64_t from = j - LANES > most ? j - LANES : most;
#pragma omp simd reduction(& : hidden)
      for (int64_t k = from; k < j; k++) hidden &= m[k] == -__builtin_inff();
      if (!hidden) break;
    }
    most = j > most ? j : most;
  }
  return most;
}

#define AT(name, b, h, r) (name + (b) * g->name.batch + (h) * g->name.head + (r) * g->name.row) /* g->q says how q lies, and so on */

/* rows of a block whose scores lie ``ahead`` numbers apart: whole tiles */
static int64_t block_rows(int64_t ahead) {
  const int64_t rows = SCORES / ahead / 12 * 12;
  return rows > BLOCK ? BLOCK : rows < 12 ? 12 : rows;
}

static int64_t block_columns(const sizes *g, const float *mask, int64_t b, int64_t h, int64_t r0, int64_t rows) {
  const int64_t columns = g->causal ? least(g->columns, r0 + rows) : g->columns;
  return mask && g->mask_column ? reached(AT(mask, b, h, r0), g->mask.row, rows, columns) : columns;
}

void attention_forward(const int64_t *fields, double scale, const float *q, const float *k, const float *v, const float *mask, float *out, float *lse) {
  const sizes *const g = (const sizes *)fields;
  const int64_t filled = (g->columns + GROUP - 1) / GROUP * GROUP, ahead = filled + LANES, width = g->width, heads = g->batch * g->heads;
  const int64_t threads = heads * g->rows * g->columns * width < WORK_FOR_THREADS ? 1 : omp_get_max_threads();
  const int64_t block = block_rows(ahead);
  const int64_t blocks = (g->rows + block - 1) / block, parts = heads >= 4 * threads ? 1 : least(blocks, 4 * threads);
#pragma omp parallel if(threads > 1)
  {
    float *const keys = malloc((width * filled + block * ahead) * sizeof(float)), *const scores = keys + width * filled;
    int64_t turned_for = -1;
#pragma omp for schedule(dynamic)
    for (int64_t item = 0; item < heads * parts; item++) {
      const int64_t n = item / parts, b = n / g->heads, h = n % g->heads;
      if (turned_for != n) turned(keys, filled, AT(k, b, h, 0), g->k.row, g->columns, width);
      turned_for = n;
      for (int64_t r0 = item % parts * blocks / parts * block; r0 < least((item % parts + 1) * blocks / parts * block, g->rows); r0 += block) {
        const int64_t rows = least(block, g->rows - r0), columns = block_columns(g, mask, b, h, r0, rows);
        float *const o = AT(out, b, h, r0);
        float shifts[BLOCK], sums[BLOCK] = {0}, logs[BLOCK];
        multiply(rows, up(columns), width, AT(q, b, h, r0), g->q.row, 1, keys, GROUP, GROUP * width, scores, ahead, 0);
        for (int64_t i = 0; i < rows; i++) {
          float *const s = scores + i * ahead;
          const int64_t seen = g->causal ? least(columns, r0 + i + 1) : columns, whole = up(seen);
          const float largest = scaled(s, seen, (float)scale, mask ? AT(mask, b, h, r0 + i) : 0, g->mask_column);
          const float shift = largest == -__builtin_inff() ? 0.0f : largest;
          float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
          for (int64_t j = 0; j < whole; j++) { s[j] = mp_expf(s[j] - shift); sum += s[j]; }
          for (int64_t j = whole; j < columns; j++) s[j] = 0.0f;
          shifts[i] = shift, sums[i] = sum;
        }
#pragma omp simd
        for (int i = 0; i < BLOCK; i++) logs[i] = logf(sums[i]);
        multiply(rows, width, columns, scores, ahead, 1, AT(v, b, h, 0), g->v.row, GROUP, o, g->out.row, 0);
        for (int64_t i = 0; i < rows; i++) {
          const float part = sums[i] == 0.0f ? 1.0f : 1.0f / sums[i];
          *AT(lse, b, h, r0 + i) = sums[i] == 0.0f ? 0.0f : shifts[i] + logs[i]; /* the backward: exp(-inf - 0) */
#pragma omp simd
          for (int64_t c = 0; c < width; c++) o[i * g->out.row + c] *= part;
        }
      }
    }
    free(keys);
  }
}

void attention_backward(const int64_t *fields, double scale, const float *q, const float *k, const float *v, const float *mask, const float *grad,
                        float *dq, float *dk, float *dv) {
  const sizes *const g = (const sizes *)fields;
  const int64_t filled = (g->columns + GROUP - 1) / GROUP * GROUP, ahead = filled + LANES, width = g->width, heads = g->batch * g->heads;
  const int64_t threads = heads * g->rows * g->columns * width < WORK_FOR_THREADS ? 1 : omp_get_max_threads();
  const int64_t block = block_rows(ahead);
#pragma omp parallel if(threads > 1)
  {
    float *const keys = malloc(2 * (width * filled + block * ahead) * sizeof(float)), *const values = keys + width * filled;
    float *const weights = values + width * filled, *const slopes = weights + block * ahead;
#pragma omp for schedule(dynamic)
    for (int64_t n = 0; n < heads; n++) {
      const int64_t b = n / g->heads, h = n % g->heads;
      turned(keys, filled, AT(k, b, h, 0), g->k.row, g->columns, width);
      turned(values, filled, AT(v, b, h, 0), g->v.row, g->columns, width);
      for (int64_t j = 0; j < g->columns; j++)
        for (int64_t c = 0; c < width; c++) AT(dk, b, h, j)[c] = AT(dv, b, h, j)[c] = 0.0f;
      for (int64_t r0 = 0; r0 < g->rows; r0 += block) {
        const int64_t rows = least(block, g->rows - r0), columns = block_columns(g, mask, b, h, r0, rows);
        const float *const x = AT(q, b, h, r0), *const slope = AT(grad, b, h, r0);
        multiply(rows, up(columns), width, x, g->q.row, 1, keys, GROUP, GROUP * width, weights, ahead, 0);
        multiply(rows, up(columns), width, slope, g->grad.row, 1, values, GROUP, GROUP * width, slopes, ahead, 0);
        for (int64_t i = 0; i < rows; i++) {
          float *const s = weights + i * ahead, *const d = slopes + i * ahead;
          const int64_t seen = g->causal ? least(columns, r0 + i + 1) : columns, whole = up(seen);
          const float times = (float)scale, largest = scaled(s, seen, times, mask ? AT(mask, b, h, r0 + i) : 0, g->mask_column);
          const float shift = largest == -__builtin_inff() ? 0.0f : largest;
          float sum = 0.0f, taken = 0.0f; /* as out . grad is, but of these very weights: a row that sees one key has exactly no slope */
#pragma omp simd reduction(+ : sum, taken)
          for (int64_t j = 0; j < whole; j++) { s[j] = mp_expf(s[j] - shift); sum += s[j]; taken += s[j] * d[j]; }
          const float part = sum == 0.0f ? 1.0f : 1.0f / sum;
          taken *= part;
#pragma omp simd
          for (int64_t j = 0; j < whole; j++) { s[j] *= part; d[j] = s[j] * (d[j] - taken) * times; }
          for (int64_t j = seen; j < columns; j++) s[j] = d[j] = 0.0f;
        }
        multiply(columns, width, rows, weights, 1, ahead, slope, g->grad.row, GROUP, AT(dv, b, h, 0), g->dv.row, 1);
        multiply(columns, width, rows, slopes, 1, ahead, x, g->q.row, GROUP, AT(dk, b, h, 0), g->dk.row, 1);
        multiply(rows, width, columns, slopes, ahead, 1, AT(k, b, h, 0), g->k.row, GROUP, AT(dq, b, h, r0), g->dq.row, 0);
      }
    }
    free(keys);
  }
}
"""


def source() -> str:
    """The library's text: ``attention_forward`` and ``attention_backward``."""
    text = VECTORS_OF_FLOATS + _TEXT.replace("@fields@", ", ".join(FIELDS)).replace("@tensors@", ", ".join(TENSORS))
    return prelude(text) + text
