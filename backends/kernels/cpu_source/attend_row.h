// Attention of a single query row for up to four heads at a time: what decoding needs where there are no matrix units.

#pragma once

#include "attention.h"

namespace {

constexpr int64_t ROW_KEYS = 64;

// Online softmax in float32. SIZE is the head size, 0 where it is not known when compiling. A tile of keys is scored,
// then its values are added up; each key and value is read once for all HEADS.
template <typename T, int64_t SIZE, int64_t HEADS>
void attend_heads(const Step<T>& step, const Task& task, int64_t first_column, Sums& out) {
  constexpr int64_t ROOM = SIZE ? SIZE : MOST_SIZE;
  const int64_t size = SIZE ? SIZE : step.size;
  float scaled[HEADS][ROOM], sum[HEADS][ROOM], scores[HEADS][ROW_KEYS], row[ROOM], largest[HEADS], weights[HEADS];
  for (int64_t g = 0; g < HEADS; g++) {
    const T* query = query_of(step, task, first_column + g);
    for (int64_t i = 0; i < size; i++) scaled[g][i] = load(query[i]) * step.scale(), sum[g][i] = 0;
    largest[g] = -INFINITE, weights[g] = 0;
  }
  int64_t offsets[ROW_KEYS];
  Slots<T> slots(step, task, task.first_key);
  for (int64_t start = task.first_key; start < task.end_key; start += ROW_KEYS) {
    const int64_t count = std::min(ROW_KEYS, task.end_key - start);
    for (int64_t j = 0; j < count; j++) prefetch(step.keys + (offsets[j] = slots.next()), size);
    for (int64_t j = 0; j < count; j++) {
      const T* key = step.keys + offsets[j];
      prefetch(step.values + offsets[j], size);
      for (int64_t i = 0; i < size; i++) row[i] = load(key[i]);
      for (int64_t g = 0; g < HEADS; g++) {
        float product = 0;
        for (int64_t i = 0; i < size; i++) product += scaled[g][i] * row[i];
        scores[g][j] = product;
      }
    }
    for (int64_t g = 0; g < HEADS; g++) {
      float most = largest[g], tile_sum = 0;
      for (int64_t j = 0; j < count; j++) most = std::max(most, scores[g][j]);
      const float shrink = std::exp(largest[g] - most);
      for (int64_t j = 0; j < count; j++) tile_sum += scores[g][j] = exponential(scores[g][j] - most);
      for (int64_t i = 0; i < size; i++) sum[g][i] *= shrink;
      weights[g] = weights[g] * shrink + tile_sum;
      largest[g] = most;
    }
    for (int64_t j = 0; j < count; j++) {
      const T* value = step.values + offsets[j];
      for (int64_t i = 0; i < size; i++) row[i] = load(value[i]);
      for (int64_t g = 0; g < HEADS; g++)
        for (int64_t i = 0; i < size; i++) sum[g][i] += scores[g][j] * row[i];
    }
  }
  for (int64_t g = 0; g < HEADS; g++) {
    out.largest[first_column + g] = largest[g], out.weights[first_column + g] = weights[g];
    for (int64_t i = 0; i < size; i++) out.sums[i * MOST_COLUMNS + first_column + g] = sum[g][i];
  }
}

template <typename T, int64_t SIZE>
void attend_row_sized(const Step<T>& step, const Task& task, Sums& out) {
  for (int64_t done = 0; done < task.head_count; done += 4) {
    const int64_t left = task.head_count - done;
    const auto part = left == 1   ? attend_heads<T, SIZE, 1>
                      : left == 2 ? attend_heads<T, SIZE, 2>
                      : left == 3 ? attend_heads<T, SIZE, 3>
                                  : attend_heads<T, SIZE, 4>;
    part(step, task, done, out);
  }
}

// A task of one row.
template <typename T>
void attend_row(const Step<T>& step, const Task& task, Sums& out) {
  if (step.size == 64) return attend_row_sized<T, 64>(step, task, out);
  if (step.size == 128) return attend_row_sized<T, 128>(step, task, out);
  attend_row_sized<T, 0>(step, task, out);
}

}  // namespace
