// Attention of a single query row in bfloat16 for a few heads at a time, on vectors that multiply pairs of bfloat16
// numbers: for so few columns, laying keys and values out for the matrix units costs more than it saves.

#pragma once

#include "attention.h"

#ifdef __AVX512BF16__
#include <immintrin.h>
#include "attend_matrix.h"
#endif

namespace {

#ifndef __AVX512BF16__

template <typename T>
bool suits_few(const Step<T>&, const Task&) {
  return false;
}
template <typename T>
void attend_few(const Step<T>&, const Task&, Sums&) {}

#else

constexpr int64_t FEW_HEADS = 4, FEW_KEYS = 64, VECTOR = 16, PAIRED = 32;

template <typename T>
bool suits_few(const Step<T>& step, const Task& task) {
  return sizeof(T) == sizeof(bf16) && task.rows == 1 && task.head_count <= FEW_HEADS &&
         (step.size == 64 || step.size == 128);
}

inline void attend_few(const Step<float>&, const Task&, Sums&) {}

inline __m512bh load_pairs(const bf16* from) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(from)); }

// The sums of 16 vectors, in their order.
inline __m512 sum_each(const __m512* of) {
  __m512 fours[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    const __m512 *a = of + 4 * i, *b = a + 2;
    const __m512 first = _mm512_add_ps(_mm512_unpacklo_ps(a[0], a[1]), _mm512_unpackhi_ps(a[0], a[1]));
    const __m512 second = _mm512_add_ps(_mm512_unpacklo_ps(b[0], b[1]), _mm512_unpackhi_ps(b[0], b[1]));
    const __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(first), _mm512_castps_pd(second));
    const __m512d high = _mm512_unpackhi_pd(_mm512_castps_pd(first), _mm512_castps_pd(second));
    fours[i] = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
  }
  const auto join = [](__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  };
  return join(join(fours[0], fours[1]), join(fours[2], fours[3]));
}

// Scores of 16 keys against one query.
template <int64_t SIZE>
__m512 score_keys(const bf16* const* keys, const __m512bh* query) {
  __m512 products[VECTOR];
#pragma GCC unroll 16
  for (int64_t j = 0; j < VECTOR; j++) {
    products[j] = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int64_t part = 0; part < SIZE / PAIRED; part++)
      products[j] = _mm512_dpbf16_ps(products[j], load_pairs(keys[j] + part * PAIRED), query[part]);
  }
  return sum_each(products);
}

// What one head keeps while the keys pass by.
struct Head {
  float largest = -INFINITE, weights = 0;
};

// Scores of a tile of keys to bfloat16 weights; returns what the sums so far shrink by.
inline float soften_keys(const __m512* scores, int64_t count, float factor, Head& head, bf16* weights) {
  __m512 most = _mm512_set1_ps(head.largest);
  for (int64_t at = 0; at * VECTOR < count; at++) most = _mm512_max_ps(most, scores[at]);
  const float largest = _mm512_reduce_max_ps(most);
  const float shrink = std::exp2((head.largest - largest) * factor);
  __m512 total = _mm512_setzero_ps();
  for (int64_t at = 0; at * VECTOR < count; at++) {
    const int64_t left = count - at * VECTOR;
    const auto mask = static_cast<__mmask16>(left >= VECTOR ? 0xffff : (1 << left) - 1);
    const __m512 scaled = _mm512_mul_ps(_mm512_sub_ps(scores[at], _mm512_set1_ps(largest)), _mm512_set1_ps(factor));
    const __m512 powers = _mm512_maskz_mov_ps(mask, power_of_two(scaled));
    total = _mm512_add_ps(total, powers);
    const __m256i rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(powers));
    _mm256_store_si256(reinterpret_cast<__m256i*>(weights + at * VECTOR), rounded);
  }
  head.largest = largest, head.weights = head.weights * shrink + _mm512_reduce_add_ps(total);
  return shrink;
}

// Adds two weighted values for each head. A pair of rows is interleaved within each quarter of a vector, so the sums
// come out of order until `write_sums`.
template <int64_t SIZE, int64_t HEADS>
void add_pair(const bf16* const* values, const bf16 (*weights)[FEW_KEYS], int64_t key, __m512 (*sums)[SIZE / VECTOR]) {
  __m512bh both[HEADS];
#pragma GCC unroll 4
  for (int64_t g = 0; g < HEADS; g++) {
    int32_t pair;
    std::memcpy(&pair, &weights[g][key], sizeof pair);
    both[g] = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
  }
#pragma GCC unroll 4
  for (int64_t part = 0; part < SIZE / PAIRED; part++) {
    const __m512i first = _mm512_loadu_si512(values[key] + part * PAIRED);
    const __m512i second = _mm512_loadu_si512(values[key + 1] + part * PAIRED);
    const auto low = reinterpret_cast<__m512bh>(_mm512_unpacklo_epi16(first, second));
    const auto high = reinterpret_cast<__m512bh>(_mm512_unpackhi_epi16(first, second));
#pragma GCC unroll 4
    for (int64_t g = 0; g < HEADS; g++) {
      sums[g][2 * part] = _mm512_dpbf16_ps(sums[g][2 * part], low, both[g]);
      sums[g][2 * part + 1] = _mm512_dpbf16_ps(sums[g][2 * part + 1], high, both[g]);
    }
  }
}

inline void write_sums(const __m512* sums, int64_t vectors, int64_t column, Sums& out) {
  for (int64_t at = 0; at < vectors; at++) {
    alignas(64) float numbers[VECTOR];
    _mm512_store_ps(numbers, sums[at]);
    const int64_t first = at / 2 * PAIRED + at % 2 * 4;
    for (int64_t i = 0; i < VECTOR; i++) out.sums[(first + i / 4 * 8 + i % 4) * MOST_COLUMNS + column] = numbers[i];
  }
}

// Where a tile's keys and values lie; past the sequence's end, a row of zeros.
template <int64_t SIZE>
struct FewRows {
  const bf16 *keys[FEW_KEYS], *values[FEW_KEYS];
  int64_t count;

  FewRows(const Step<bf16>& step, const Task& task, int64_t start)
      : count(std::clamp<int64_t>(task.end_key - start, 0, FEW_KEYS)) {
    static const bf16 nothing[SIZE] = {};
    std::fill_n(keys, FEW_KEYS, nothing), std::fill_n(values, FEW_KEYS, nothing);
    if (count == 0) return;
    Slots<bf16> slots(step, task, start);
    for (int64_t j = 0; j < count; j++) {
      const int64_t offset = slots.next();
      keys[j] = step.keys + offset, values[j] = step.values + offset;
    }
  }
};

template <int64_t SIZE, int64_t HEADS>
void attend_few_heads(const Step<bf16>& step, const Task& task, int64_t column, Sums& out) {
  const float factor = step.scale() * 1.44269504f;
  __m512bh query[HEADS][SIZE / PAIRED];
  __m512 sums[HEADS][SIZE / VECTOR];
  Head heads[HEADS];
  alignas(64) bf16 weights[HEADS][FEW_KEYS];
  for (int64_t g = 0; g < HEADS; g++) {
    for (int64_t i = 0; i < SIZE / PAIRED; i++) query[g][i] = load_pairs(query_of(step, task, column + g) + i * PAIRED);
    for (int64_t i = 0; i < SIZE / VECTOR; i++) sums[g][i] = _mm512_setzero_ps();
  }
  FewRows<SIZE> rows(step, task, task.first_key);
  for (int64_t start = task.first_key; start < task.end_key; start += FEW_KEYS) {
    // The next tile is asked for little by little: all at once, nothing else could be read meanwhile.
    const FewRows<SIZE> next(step, task, start + FEW_KEYS);
    const int64_t count = rows.count, rest = count % VECTOR;
    for (int64_t g = 0; g < HEADS; g++) {
      __m512 scores[FEW_KEYS / VECTOR];
      for (int64_t at = 0; at * VECTOR < count; at++) {
        if (g == 0)
          for (int64_t j = 0; j < VECTOR; j++) prefetch(next.keys[at * VECTOR + j], SIZE);
        scores[at] = score_keys<SIZE>(rows.keys + at * VECTOR, query[g]);
      }
      if (rest)
        scores[count / VECTOR] = _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITE), (1 << rest) - 1, scores[count / VECTOR]);
      const float shrink = soften_keys(scores, count, factor, heads[g], weights[g]);
      for (int64_t i = 0; i < SIZE / VECTOR; i++) sums[g][i] = _mm512_mul_ps(sums[g][i], _mm512_set1_ps(shrink));
    }
    for (int64_t key = 0; key < count; key += 2) {
      prefetch(next.values[key], SIZE), prefetch(next.values[key + 1], SIZE);
      add_pair<SIZE, HEADS>(rows.values, weights, key, sums);
    }
    rows = next;
  }
  for (int64_t g = 0; g < HEADS; g++) {
    write_sums(sums[g], SIZE / VECTOR, column + g, out);
    out.largest[column + g] = heads[g].largest * step.scale(), out.weights[column + g] = heads[g].weights;
  }
}

// A task of one row and up to four heads; with large heads two at a time, for their sums to stay in registers.
inline void attend_few(const Step<bf16>& step, const Task& task, Sums& out) {
  const int64_t together = step.size == 64 ? FEW_HEADS : 2;
  for (int64_t done = 0; done < task.head_count; done += together) {
    const int64_t heads = std::min(together, task.head_count - done);
    if (step.size == 128) heads == 1 ? attend_few_heads<128, 1>(step, task, done, out)
                                     : attend_few_heads<128, 2>(step, task, done, out);
    else if (heads == 1) attend_few_heads<64, 1>(step, task, done, out);
    else if (heads == 2) attend_few_heads<64, 2>(step, task, done, out);
    else if (heads == 3) attend_few_heads<64, 3>(step, task, done, out);
    else attend_few_heads<64, 4>(step, task, done, out);
  }
}

#endif

}  // namespace
