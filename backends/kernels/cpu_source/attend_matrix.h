// Attention of a tile of query rows in bfloat16 on the matrix units, with sums in float32.
// As in attend_tile.h everything lies transposed: softmax works down the columns, 16 of them in a vector.

#pragma once

#include "attention.h"
#include "matrix_units.h"

namespace {

#ifndef __AMX_BF16__

struct MatrixRoom {};
class MatrixUnits {};
template <typename T>
bool suits_matrix(const Step<T>&) {
  return false;
}
template <typename T>
void attend_matrix(const Step<T>&, const Task&, MatrixRoom&, Sums&) {}

#else

constexpr int64_t MATRIX_KEYS = 64, COLUMN_TILES = MOST_COLUMNS / TILE_SIDE;

// `query`, `values` and `weights` are tiles of TILE_NUMBERS, ready to be loaded.
struct MatrixRoom {
  alignas(64) bf16 query[MOST_SIZE * MOST_COLUMNS];
  alignas(64) bf16 keys[MATRIX_KEYS * MOST_SIZE];
  alignas(64) bf16 values[MATRIX_KEYS * MOST_SIZE];
  alignas(64) bf16 weights[MATRIX_KEYS * MOST_COLUMNS];
  alignas(64) float scores[MATRIX_KEYS * MOST_COLUMNS];
  alignas(64) int32_t limits[MOST_COLUMNS];
  alignas(64) bf16 nothing[MOST_SIZE] = {};
};

template <typename T>
bool suits_matrix(const Step<T>& step) {
  return sizeof(T) == sizeof(bf16) && step.size % TILE_INNER == 0;
}

inline void attend_matrix(const Step<float>&, const Task&, MatrixRoom&, Sums&) {}

// Each column's 32 numbers of one part of the head become 16 pairs below each other.
inline void read_query(const Step<bf16>& step, const Task& task, MatrixRoom& room) {
  for (int64_t tile = 0; tile * TILE_SIDE < task.columns(); tile++)
    for (int64_t part = 0; part < step.size / TILE_INNER; part++) {
      __m512i rows[TILE_SIDE];
      for (int64_t c = 0; c < TILE_SIDE; c++) {
        const int64_t column = tile * TILE_SIDE + c;
        const bf16* from = column < task.columns() ? query_of(step, task, column) : room.nothing;
        rows[c] = _mm512_loadu_si512(from + part * TILE_INNER);
      }
      transpose(rows);
      bf16* to = room.query + (part * COLUMN_TILES + tile) * TILE_NUMBERS;
      for (int64_t i = 0; i < TILE_SIDE; i++) _mm512_store_si512(to + i * TILE_INNER, rows[i]);
    }
}

// Asks for the keys and values of a tile while the one before it is computed.
inline void ask_ahead(const Step<bf16>& step, const Task& task, int64_t start) {
  if (start >= task.end_key) return;
  Slots<bf16> slots(step, task, start);
  for (int64_t j = std::min(MATRIX_KEYS, task.end_key - start); j > 0; j--) {
    const int64_t offset = slots.next();
    prefetch(step.keys + offset, step.size), prefetch(step.values + offset, step.size);
  }
}

// Copies the keys, and turns the values so that an element's values follow each other. Past `count` lie zeros: what
// the cache holds there is never read.
inline void read_cache(const Step<bf16>& step, Slots<bf16> slots, int64_t count, int64_t padded, MatrixRoom& room) {
  const bf16* values[MATRIX_KEYS];
  for (int64_t j = 0; j < padded; j++) {
    const int64_t offset = j < count ? slots.next() : 0;
    const bf16* key = j < count ? step.keys + offset : room.nothing;
    values[j] = j < count ? step.values + offset : room.nothing;
    for (int64_t i = 0; i < step.size; i += TILE_INNER)
      _mm512_store_si512(room.keys + j * step.size + i, _mm512_loadu_si512(key + i));
  }
  for (int64_t part = 0; part < padded / TILE_INNER; part++)
    for (int64_t tile = 0; tile < step.size / TILE_SIDE; tile++) {
      __m512i pairs[TILE_SIDE];
#pragma GCC unroll 16
      for (int64_t i = 0; i < TILE_SIDE; i++) {
        const bf16* const* pair = values + part * TILE_INNER + 2 * i;
        const auto low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(pair[0] + tile * TILE_SIDE));
        const auto high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(pair[1] + tile * TILE_SIDE));
        pairs[i] = _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
      }
      transpose(pairs);
      bf16* to = room.values + (part * MOST_SIZE / TILE_SIDE + tile) * TILE_NUMBERS;
      for (int64_t i = 0; i < TILE_SIDE; i++) _mm512_store_si512(to + i * TILE_INNER, pairs[i]);
    }
}

// Scores of 32 keys against one or two tiles of columns.
template <bool RIGHT>
void score(MatrixRoom& room, int64_t size, int64_t key, int64_t tile) {
  settle();
  clear_sums<true, RIGHT>();
  for (int64_t part = 0; part < size / TILE_INNER; part++)
    add_products<true, RIGHT>(room.keys + key * size + part * TILE_INNER, size, TILE_SIDE * size,
                              room.query + (part * COLUMN_TILES + tile) * TILE_NUMBERS);
  store_sums<true, RIGHT>(room.scores + key * MOST_COLUMNS + tile * TILE_SIDE, MOST_COLUMNS);
}

// Adds the weighted values of `parts` · 32 keys for 32 elements of the head and one or two tiles of columns.
template <bool RIGHT>
void add_values(MatrixRoom& room, int64_t parts, int64_t element_tile, int64_t tile, Sums& out) {
  float* sums = out.sums + element_tile * TILE_SIDE * MOST_COLUMNS + tile * TILE_SIDE;
  load_sums<true, RIGHT>(sums, MOST_COLUMNS);
  for (int64_t part = 0; part < parts; part++)
    add_products<true, RIGHT>(room.values + (part * MOST_SIZE / TILE_SIDE + element_tile) * TILE_NUMBERS, TILE_INNER,
                              TILE_NUMBERS, room.weights + (part * COLUMN_TILES + tile) * TILE_NUMBERS);
  store_sums<true, RIGHT>(sums, MOST_COLUMNS);
}

// 2^x within 4e-5 relative, far below what is left of it in bfloat16.
inline __m512 power_of_two(__m512 x) {
  const __m512 whole = _mm512_roundscale_ps(x, 0), rest = _mm512_sub_ps(x, whole);
  __m512 series = _mm512_set1_ps(0.00961813f);
  series = _mm512_fmadd_ps(series, rest, _mm512_set1_ps(0.05550411f));
  series = _mm512_fmadd_ps(series, rest, _mm512_set1_ps(0.24022651f));
  series = _mm512_fmadd_ps(series, rest, _mm512_set1_ps(0.69314718f));
  series = _mm512_fmadd_ps(series, rest, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(series, whole);
}

// Scores of one tile of columns to weights, in pairs of keys; the column's sums so far shrink.
template <bool MASKED>
void soften_tile(MatrixRoom& room, int64_t keys, float factor, int64_t size, int64_t tile, Sums& out) {
  const __m512 lowest = _mm512_set1_ps(-INFINITE), times = _mm512_set1_ps(factor);
  const __m512i limits = _mm512_load_si512(room.limits + tile * TILE_SIDE);
  const float* scores = room.scores + tile * TILE_SIDE;
  const __m512 before = _mm512_load_ps(out.largest + tile * TILE_SIDE);
  __m512 most = before;
  for (int64_t j = 0; j < keys; j++) {
    __m512 row = _mm512_load_ps(scores + j * MOST_COLUMNS);
    if (MASKED) row = _mm512_mask_mov_ps(lowest, _mm512_cmpgt_epi32_mask(limits, _mm512_set1_epi32(j)), row);
    most = _mm512_max_ps(most, row);
  }
  _mm512_store_ps(out.largest + tile * TILE_SIDE, most);
  const __mmask16 seen = _mm512_cmp_ps_mask(most, lowest, _CMP_GT_OQ), had = _mm512_cmp_ps_mask(before, lowest, _CMP_GT_OQ);
  const __m512 base = _mm512_mul_ps(_mm512_maskz_mov_ps(seen, most), times);
  const __m512 shrink = _mm512_maskz_mov_ps(had, power_of_two(_mm512_fmsub_ps(before, times, base)));
  __m512 total = _mm512_mul_ps(_mm512_load_ps(out.weights + tile * TILE_SIDE), shrink);
  const __m512i half = _mm512_set1_epi32(0x8000), high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  for (int64_t j = 0; j < keys; j += 2) {
    __m512 first = power_of_two(_mm512_fmsub_ps(_mm512_load_ps(scores + j * MOST_COLUMNS), times, base));
    __m512 second = power_of_two(_mm512_fmsub_ps(_mm512_load_ps(scores + (j + 1) * MOST_COLUMNS), times, base));
    if (MASKED) {
      first = _mm512_maskz_mov_ps(_mm512_cmpgt_epi32_mask(limits, _mm512_set1_epi32(j)), first);
      second = _mm512_maskz_mov_ps(_mm512_cmpgt_epi32_mask(limits, _mm512_set1_epi32(j + 1)), second);
    }
    total = _mm512_add_ps(total, _mm512_add_ps(first, second));
    const __m512i low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(first), half), 16);
    const __m512i top = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(second), half), high);
    bf16* to = room.weights + (j / TILE_INNER * COLUMN_TILES + tile) * TILE_NUMBERS + j % TILE_INNER / 2 * TILE_INNER;
    _mm512_store_si512(to, _mm512_or_si512(low, top));
  }
  _mm512_store_ps(out.weights + tile * TILE_SIDE, total);
  if (_mm512_cmp_ps_mask(shrink, _mm512_set1_ps(1.0f), _CMP_EQ_OQ) == 0xffff) return;
  for (int64_t i = 0; i < size; i++) {
    float* sums = out.sums + i * MOST_COLUMNS + tile * TILE_SIDE;
    _mm512_store_ps(sums, _mm512_mul_ps(_mm512_load_ps(sums), shrink));
  }
}

inline void attend_keys(MatrixRoom& room, int64_t padded, bool masked, float factor, int64_t size, int64_t tiles,
                        Sums& out) {
  for (int64_t tile = 0; tile < tiles; tile += 2)
    for (int64_t key = 0; key < padded; key += TILE_INNER)
      tile + 1 < tiles ? score<true>(room, size, key, tile) : score<false>(room, size, key, tile);
  for (int64_t tile = 0; tile < tiles; tile++)
    masked ? soften_tile<true>(room, padded, factor, size, tile, out)
           : soften_tile<false>(room, padded, factor, size, tile, out);
  for (int64_t tile = 0; tile < tiles; tile += 2)
    for (int64_t element = 0; element < size / TILE_SIDE; element += 2)
      tile + 1 < tiles ? add_values<true>(room, padded / TILE_INNER, element, tile, out)
                       : add_values<false>(room, padded / TILE_INNER, element, tile, out);
}

inline void attend_matrix(const Step<bf16>& step, const Task& task, MatrixRoom& room, Sums& out) {
  const int64_t tiles = (task.columns() + TILE_SIDE - 1) / TILE_SIDE;
  int64_t visible[MOST_COLUMNS], least = task.end_key;
  for (int64_t c = 0; c < tiles * TILE_SIDE; c++) {
    visible[c] = c < task.columns() ? visible_to(step, task, c) : task.end_key;
    least = std::min(least, visible[c]);
  }
  read_query(step, task, room);
  std::fill_n(out.sums, step.size * MOST_COLUMNS, 0.0f);
  std::fill_n(out.largest, MOST_COLUMNS, -INFINITE), std::fill_n(out.weights, MOST_COLUMNS, 0.0f);
  for (int64_t start = task.first_key; start < task.end_key; start += MATRIX_KEYS) {
    const int64_t count = std::min(MATRIX_KEYS, task.end_key - start);
    const int64_t padded = (count + TILE_INNER - 1) / TILE_INNER * TILE_INNER;
    const bool masked = count < padded || least < start + count;
    if (masked)
      for (int64_t c = 0; c < tiles * TILE_SIDE; c++)
        room.limits[c] = static_cast<int32_t>(std::min(visible[c] - start, count));
    read_cache(step, Slots<bf16>(step, task, start), count, padded, room);
    if (tiles == 1) ask_ahead(step, task, start + MATRIX_KEYS);
    attend_keys(room, padded, masked, step.scale() * 1.44269504f, step.size, tiles, out);
  }
  for (int64_t c = 0; c < task.columns(); c++) out.largest[c] *= step.scale();
}

#endif

}  // namespace
