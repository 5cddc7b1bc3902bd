// Paged attention of one step: cut into tasks, each computed by the kernel that suits it; parts of one average joined.

#include <memory>
#include <vector>

#include "attend_few.h"
#include "attend_matrix.h"
#include "attend_row.h"
#include "attend_tile.h"

namespace {

// Keys of a part, and the most parts; a longer sequence has longer parts.
constexpr int64_t PART_KEYS = 512, MOST_PARTS = 16;
// Up to so many heads the row kernel is faster than a tile whose other columns are empty.
constexpr int64_t ROW_COLUMNS = 4;

// A span that is one task for each head is cut along its keys, so that threads share a long sequence. How often depends
// on its length alone: neither its neighbours nor the number of threads change a result.
inline int64_t part_count(int64_t keys, int64_t asked) {
  return std::min(asked ? asked : (keys + PART_KEYS - 1) / PART_KEYS, MOST_PARTS);
}

// What is left of a task until its siblings are done: largest and weight of each column, then its sums.
inline int64_t partial_size(const Task& task, int64_t size) { return task.columns() * (size + 2); }

template <typename T>
void add_parts(std::vector<Task>& tasks, const Step<T>& step, Task task, int64_t parts) {
  const int64_t keys = visible_to(step, task, task.columns() - 1), share = (keys + parts - 1) / parts;
  for (task.part = 0, task.parts = parts; task.part < parts; task.part++) {
    task.first_key = std::min(keys, task.part * share), task.end_key = std::min(keys, task.first_key + share);
    if (!tasks.empty())
      task.partial_at = tasks.back().partial_at + (tasks.back().parts > 1 ? partial_size(tasks.back(), step.size) : 0);
    tasks.push_back(task);
  }
}

template <typename T>
void add_tile(std::vector<Task>& tasks, const Step<T>& step, Task task, int64_t parts) {
  const int64_t group = step.heads / step.kv_heads;
  for (task.kv_head = 0; task.kv_head < step.kv_heads; task.kv_head++)
    for (int64_t done = 0; done < group; done += MOST_COLUMNS) {
      task.first_head = task.kv_head * group + done, task.head_count = std::min(MOST_COLUMNS, group - done);
      add_parts(tasks, step, task, parts);
    }
}

template <typename T>
std::vector<Task> cut(const Step<T>& step, int64_t sequences, int64_t asked_parts) {
  std::vector<Task> tasks;
  const int64_t tile_rows = MOST_COLUMNS / std::min(step.heads / step.kv_heads, MOST_COLUMNS);
  for (int64_t sequence = 0; sequence < sequences; sequence++) {
    const int64_t start = step.query_starts[sequence], rows = step.query_starts[sequence + 1] - start;
    const int64_t parts = rows <= tile_rows ? part_count(step.sequence_tokens[sequence], asked_parts) : 1;
    // Late rows see most: begun first, they leave the small tasks to even out the threads.
    for (int64_t row = (rows - 1) / tile_rows * tile_rows; row >= 0; row -= tile_rows) {
      Task task{};
      task.sequence = sequence, task.first_row = start + row, task.rows = std::min(tile_rows, rows - row);
      add_tile(tasks, step, task, parts);
    }
  }
  return tasks;
}

// A thread's working memory, kept from call to call.
struct Room {
  Sums sums;
  TileRoom tile;
  MatrixRoom matrix;
};

Room& own_room() {
  static thread_local const std::unique_ptr<Room> room(new Room);
  return *room;
}

template <typename T>
void compute(const Step<T>& step, const Task& task, Room& room) {
  if (suits_few(step, task)) return attend_few(step, task, room.sums);
  if (suits_matrix(step)) return attend_matrix(step, task, room.matrix, room.sums);
  if (task.columns() <= ROW_COLUMNS && task.rows == 1) return attend_row(step, task, room.sums);
  attend_tile(step, task, room.tile, room.sums);
}

template <typename T>
void write(const Step<T>& step, const Task& task, const Sums& from) {
  for (int64_t c = 0; c < task.columns(); c++) {
    T* out = out_of(step, task, c);
    const float scale = 1.0f / from.weights[c];
    for (int64_t i = 0; i < step.size; i++) store(&out[i], from.sums[i * MOST_COLUMNS + c] * scale);
  }
}

inline void keep(const Task& task, int64_t size, const Sums& from, float* to) {
  for (int64_t c = 0; c < task.columns(); c++, to += size + 2) {
    to[0] = from.largest[c], to[1] = from.weights[c];
    for (int64_t i = 0; i < size; i++) to[2 + i] = from.sums[i * MOST_COLUMNS + c];
  }
}

// One average out of its parts, the first of which is `task`. A part that saw no key of a column has no say in it.
template <typename T>
void join(const Step<T>& step, const Task& task, const float* partial) {
  const int64_t stride = partial_size(task, step.size);
  for (int64_t c = 0; c < task.columns(); c++) {
    const float* parts = partial + task.partial_at + c * (step.size + 2);
    float largest = -INFINITE, weight = 0, sums[MOST_SIZE] = {};
    for (int64_t part = 0; part < task.parts; part++) largest = std::max(largest, parts[part * stride]);
    for (int64_t part = 0; part < task.parts; part++) {
      const float* from = parts + part * stride;
      if (from[0] == -INFINITE) continue;
      const float shrink = std::exp(from[0] - largest);
      weight += from[1] * shrink;
      for (int64_t i = 0; i < step.size; i++) sums[i] += from[2 + i] * shrink;
    }
    T* out = out_of(step, task, c);
    for (int64_t i = 0; i < step.size; i++) store(&out[i], sums[i] / weight);
  }
}

template <typename T>
void paged_attention(const Step<T>& step, int64_t sequences, int64_t parts, int threads) {
  const std::vector<Task> tasks = cut(step, sequences, parts);
  if (tasks.empty()) return;
  const int64_t count = tasks.size();
  const Task& last = tasks.back();
  std::unique_ptr<float[]> partial(new float[last.partial_at + partial_size(last, step.size)]);
#pragma omp parallel num_threads(threads)
  {
    Room& room = own_room();
    [[maybe_unused]] const MatrixUnits units;
#pragma omp for schedule(dynamic, 1)
    for (int64_t at = 0; at < count; at++) {
      compute(step, tasks[at], room);
      if (tasks[at].parts == 1) write(step, tasks[at], room.sums);
      else keep(tasks[at], step.size, room.sums, partial.get() + tasks[at].partial_at);
    }
#pragma omp for schedule(static)
    for (int64_t at = 0; at < count; at++)
      if (tasks[at].parts > 1 && tasks[at].part == 0) join(step, tasks[at], partial.get());
  }
}

}  // namespace

#define EXPORT(T, SUFFIX)                                                                                              \
  extern "C" void paged_attention_##SUFFIX(                                                                            \
      const T* query, T* out, const T* keys, const T* values, const int32_t* query_starts,                             \
      const int32_t* sequence_tokens, const int32_t* block_tables, int64_t sequences, int64_t table_stride,            \
      int64_t heads, int64_t kv_heads, int64_t size, int64_t block_tokens, int64_t parts, int threads) {               \
    const Step<T> step{query,        keys,  values,   out,  query_starts, sequence_tokens, block_tables,              \
                       table_stride, heads, kv_heads, size, block_tokens};                                             \
    paged_attention(step, sequences, parts, threads);                                                                  \
  }

EXPORT(float, f32)
EXPORT(bf16, bf16)
