// What the attention kernels share: the step's tensors, one task of it, and the sums that a task leaves.

#pragma once

#include "numbers.h"

namespace {

// A task has at most this many columns (query rows times the heads that share a key-value head).
constexpr int64_t MOST_COLUMNS = 64;
constexpr int64_t MOST_SIZE = 256;

// The tensors of one call. `cache` strides: a slot is kv_heads · size elements.
template <typename T>
struct Step {
  const T *query, *keys, *values;
  T* out;
  const int32_t *query_starts, *sequence_tokens, *block_tables;
  int64_t table_stride, heads, kv_heads, size, block_tokens;

  int64_t slot_size() const { return kv_heads * size; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(size)); }
};

// `rows` query rows from `first_row` on, times `head_count` query heads of one key-value head, against the keys from
// `first_key` up to `end_key`. Column row · head_count + head is one query vector.
struct Task {
  int64_t sequence, kv_head, first_head, head_count, first_row, rows, first_key, end_key;
  // One of `parts` parts that the keys are cut into; where its sums are kept until all are done.
  int64_t part, parts, partial_at;

  int64_t columns() const { return rows * head_count; }
};

// The unfinished softmax average of a task's columns. `sums` is [size][MOST_COLUMNS]; `largest` is the greatest score,
// to base e, minus infinity for a column that saw no key.
struct Sums {
  alignas(64) float sums[MOST_SIZE * MOST_COLUMNS];
  alignas(64) float largest[MOST_COLUMNS];
  alignas(64) float weights[MOST_COLUMNS];
};

template <typename T>
const T* query_of(const Step<T>& step, const Task& task, int64_t column) {
  const int64_t row = task.first_row + column / task.head_count;
  return step.query + (row * step.heads + task.first_head + column % task.head_count) * step.size;
}

template <typename T>
T* out_of(const Step<T>& step, const Task& task, int64_t column) {
  return step.out + (query_of(step, task, column) - step.query);
}

// How many tokens of its sequence a column's query sees: all cached ones, those before it, and itself.
template <typename T>
int64_t visible_to(const Step<T>& step, const Task& task, int64_t column) {
  const int64_t rows_after = step.query_starts[task.sequence + 1] - (task.first_row + column / task.head_count) - 1;
  return step.sequence_tokens[task.sequence] - rows_after;
}

// Walks a sequence's slots in order, block by block.
template <typename T>
class Slots {
 public:
  Slots(const Step<T>& step, const Task& task, int64_t first)
      : blocks_(step.block_tables + task.sequence * step.table_stride + first / step.block_tokens),
        inside_(first % step.block_tokens), block_tokens_(step.block_tokens), stride_(step.slot_size()),
        head_(task.kv_head * step.size) {}

  // Elements from the cache's start to the next slot's key or value.
  int64_t next() {
    const int64_t offset = (static_cast<int64_t>(*blocks_) * block_tokens_ + inside_) * stride_ + head_;
    if (++inside_ == block_tokens_) inside_ = 0, blocks_++;
    return offset;
  }

 private:
  const int32_t* blocks_;
  int64_t inside_, block_tokens_, stride_, head_;
};

// Asks for a row of the cache ahead of its use: blocks lie anywhere, so the hardware cannot guess the next one.
template <typename T>
void prefetch(const T* row, int64_t size) {
  for (int64_t i = 0; i < size; i += 64 / sizeof(T)) __builtin_prefetch(row + i);
}

}  // namespace
