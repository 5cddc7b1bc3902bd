// Attention of a tile of query rows in float32: keys times queries and values times weights, as two matrix products.
// Everything lies transposed, [key][column] and [element][column], so that softmax needs no sums across a vector.

#pragma once

#include "attention.h"

namespace {

#ifdef __AVX512F__
constexpr int64_t LANES = 16, PRODUCT_ROWS = 8;
#else
constexpr int64_t LANES = 8, PRODUCT_ROWS = 4;
#endif
typedef float Vector __attribute__((vector_size(LANES * sizeof(float))));

constexpr int64_t TILE_KEYS = 64;

struct TileRoom {
  alignas(64) float query[MOST_SIZE * MOST_COLUMNS];
  alignas(64) float rows[TILE_KEYS * MOST_SIZE];
  alignas(64) float scores[TILE_KEYS * MOST_COLUMNS];
};

// out [ROWS][2 vectors] = (add ? out : 0) + left [ROWS][inner] · right [inner][2 vectors], at any strides of `left`.
template <int64_t ROWS>
void product_block(const float* left, int64_t row_stride, int64_t inner_stride, const float* right, int64_t inner,
                   float* out, bool add) {
  Vector sums[ROWS][2];
#pragma GCC unroll 8
  for (int64_t r = 0; r < ROWS; r++) {
    const Vector* from = reinterpret_cast<const Vector*>(out + r * MOST_COLUMNS);
    sums[r][0] = add ? from[0] : Vector{}, sums[r][1] = add ? from[1] : Vector{};
  }
  for (int64_t k = 0; k < inner; k++) {
    const Vector* with = reinterpret_cast<const Vector*>(right + k * MOST_COLUMNS);
    const Vector first = with[0], second = with[1];
#pragma GCC unroll 8
    for (int64_t r = 0; r < ROWS; r++) {
      const float factor = left[r * row_stride + k * inner_stride];
      sums[r][0] += factor * first, sums[r][1] += factor * second;
    }
  }
#pragma GCC unroll 8
  for (int64_t r = 0; r < ROWS; r++) {
    Vector* to = reinterpret_cast<Vector*>(out + r * MOST_COLUMNS);
    to[0] = sums[r][0], to[1] = sums[r][1];
  }
}

// The same for `rows` rows and the first `columns` columns.
inline void product(const float* left, int64_t row_stride, int64_t inner_stride, const float* right, int64_t inner,
                    float* out, int64_t rows, int64_t columns, bool add) {
  for (int64_t column = 0; column < columns; column += 2 * LANES) {
    int64_t row = 0;
    for (; row + PRODUCT_ROWS <= rows; row += PRODUCT_ROWS)
      product_block<PRODUCT_ROWS>(left + row * row_stride, row_stride, inner_stride, right + column, inner,
                                  out + row * MOST_COLUMNS + column, add);
    for (; row < rows; row++)
      product_block<1>(left + row * row_stride, row_stride, inner_stride, right + column, inner,
                       out + row * MOST_COLUMNS + column, add);
  }
}

template <typename T>
void read_rows(const Step<T>& step, const T* cache, Slots<T> slots, int64_t count, float* rows) {
  for (int64_t j = 0; j < count; j++) {
    const T* from = cache + slots.next();
    for (int64_t i = 0; i < step.size; i++) rows[j * step.size + i] = load(from[i]);
  }
}

// Scores to weights, in place; the sums so far shrink to the new greatest score. `limits` are the keys that each
// column sees of this tile.
inline void soften(float* scores, int64_t count, const float* limits, bool masked, int64_t columns, int64_t size,
                   Sums& out) {
  alignas(64) float most[MOST_COLUMNS], shrink[MOST_COLUMNS];
  for (int64_t c = 0; c < columns; c++) most[c] = out.largest[c];
  for (int64_t j = 0; j < count; j++) {
    float* row = scores + j * MOST_COLUMNS;
    if (masked)
      for (int64_t c = 0; c < columns; c++) row[c] = j < limits[c] ? row[c] : -INFINITE;
    for (int64_t c = 0; c < columns; c++) most[c] = std::max(most[c], row[c]);
  }
  for (int64_t c = 0; c < columns; c++) {
    const float base = most[c] == -INFINITE ? 0.0f : most[c];
    shrink[c] = out.largest[c] == -INFINITE ? 0.0f : exponential(out.largest[c] - base);
    out.largest[c] = most[c], out.weights[c] *= shrink[c], most[c] = base;
  }
  for (int64_t j = 0; j < count; j++) {
    float* row = scores + j * MOST_COLUMNS;
    for (int64_t c = 0; c < columns; c++) {
      const float weight = exponential(row[c] - most[c]);
      row[c] = row[c] == -INFINITE ? 0.0f : weight;
      out.weights[c] += row[c];
    }
  }
  for (int64_t i = 0; i < size; i++)
    for (int64_t c = 0; c < columns; c++) out.sums[i * MOST_COLUMNS + c] *= shrink[c];
}

template <typename T>
void attend_tile(const Step<T>& step, const Task& task, TileRoom& room, Sums& out) {
  const int64_t size = step.size, columns = (task.columns() + 2 * LANES - 1) / (2 * LANES) * (2 * LANES);
  alignas(64) float limits[MOST_COLUMNS];
  for (int64_t c = 0; c < columns; c++) {
    const bool used = c < task.columns();
    const T* query = used ? query_of(step, task, c) : nullptr;
    for (int64_t i = 0; i < size; i++) {
      room.query[i * MOST_COLUMNS + c] = used ? load(query[i]) * step.scale() : 0.0f;
      out.sums[i * MOST_COLUMNS + c] = 0;
    }
    out.largest[c] = -INFINITE, out.weights[c] = 0;
  }
  for (int64_t start = task.first_key; start < task.end_key; start += TILE_KEYS) {
    const int64_t count = std::min(TILE_KEYS, task.end_key - start);
    bool masked = false;
    for (int64_t c = 0; c < columns; c++) {
      limits[c] = c < task.columns() ? static_cast<float>(visible_to(step, task, c) - start) : TILE_KEYS;
      masked |= limits[c] < count;
    }
    const Slots<T> slots(step, task, start);
    read_rows(step, step.keys, slots, count, room.rows);
    product(room.rows, size, 1, room.query, size, room.scores, count, columns, false);
    soften(room.scores, count, limits, masked, columns, size, out);
    read_rows(step, step.values, slots, count, room.rows);
    product(room.rows, 1, size, room.scores, count, out.sums, size, columns, true);
  }
}

}  // namespace
