// Kernels for the CPU, in plain C++ that the compiler vectorises for the machine it is built on (cpu.py builds it).
// Tensors are contiguous; `bf16` is stored as its 16 bits, all arithmetic is float32. Shapes: see interface.py.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace {

struct bf16 {
  uint16_t bits;
};

inline float load(float value) { return value; }

inline float load(bf16 value) {
  uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

inline void store(float* to, float value) { *to = value; }

// Rounds to nearest, ties to even, as torch does.
inline void store(bf16* to, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  to->bits = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// e^x within 1e-7 relative: 2^n times the Taylor series of the rest, |rest| <= ln(2) / 2. Branch-free, so it vectorises.
inline float exponential(float x) {
  x = std::min(std::max(x, -87.0f), 87.0f);
  const float n = std::nearbyint(x * 1.44269504f);
  const float r = (x - n * 0.693145751953125f) - n * 1.42860677e-6f;
  float series = 1.0f / 5040;
  series = series * r + 1.0f / 720;
  series = series * r + 1.0f / 120;
  series = series * r + 1.0f / 24;
  series = series * r + 1.0f / 6;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return series * power;
}

template <typename T>
void add_rms_norm(const T* weight, const T* update, float* residual, T* out, int64_t rows, int64_t size, float epsilon,
                  int threads) {
#pragma omp parallel for num_threads(threads) if (rows > 16)
  for (int64_t row = 0; row < rows; row++) {
    float* x = residual + row * size;
    if (update)
      for (int64_t i = 0; i < size; i++) x[i] += load(update[row * size + i]);
    float squares = 0;
    for (int64_t i = 0; i < size; i++) squares += x[i] * x[i];
    const float scale = 1.0f / std::sqrt(squares / size + epsilon);
    for (int64_t i = 0; i < size; i++) store(&out[row * size + i], x[i] * scale * load(weight[i]));
  }
}

template <typename T>
void rotate(const T* from, T* to, const float* cosines, const float* sines, int64_t half) {
  for (int64_t i = 0; i < half; i++) {
    const float first = load(from[i]), second = load(from[i + half]);
    store(&to[i], first * cosines[i] - second * sines[i]);
    store(&to[i + half], second * cosines[i] + first * sines[i]);
  }
}

template <typename T>
void rotate_and_store(const T* qkv, const float* cosines, const float* sines, const int64_t* slots, T* query, T* keys,
                      T* values, int64_t rows, int64_t heads, int64_t kv_heads, int64_t size, int threads) {
  const int64_t half = size / 2;
#pragma omp parallel for num_threads(threads) if (rows > 16)
  for (int64_t row = 0; row < rows; row++) {
    const T* from = qkv + row * (heads + 2 * kv_heads) * size;
    const float *row_cosines = cosines + row * half, *row_sines = sines + row * half;
    const int64_t slot = slots[row] * kv_heads * size;
    for (int64_t head = 0; head < heads; head++)
      rotate(from + head * size, query + (row * heads + head) * size, row_cosines, row_sines, half);
    for (int64_t head = 0; head < kv_heads; head++)
      rotate(from + (heads + head) * size, keys + slot + head * size, row_cosines, row_sines, half);
    std::memcpy(values + slot, from + (heads + kv_heads) * size, kv_heads * size * sizeof(T));
  }
}

template <typename T>
void gated_silu(const T* gate_up, T* out, int64_t rows, int64_t size, int threads) {
#pragma omp parallel for num_threads(threads) if (rows > 4)
  for (int64_t row = 0; row < rows; row++) {
    const T *gate = gate_up + row * 2 * size, *up = gate + size;
    for (int64_t i = 0; i < size; i++) {
      const float x = load(gate[i]);
      store(&out[row * size + i], x / (1.0f + exponential(-x)) * load(up[i]));
    }
  }
}

// Asks for a row of the cache ahead of its use: blocks lie anywhere, so the hardware cannot guess the next one.
template <typename T>
void prefetch(const T* row, int64_t size) {
  for (int64_t i = 0; i < size; i += 64 / sizeof(T)) __builtin_prefetch(row + i);
}

constexpr int64_t MOST_SIZE = 256, TILE = 64;

// One query row against one key-value head, for the GROUP query heads that share it: online softmax in float32. SIZE
// is the head size, 0 where it is not known when compiling. A tile of keys is scored, then its values are added up.
template <typename T, int64_t SIZE, int64_t GROUP>
void attend(const T* query, T* out, const T* keys, const T* values, const int32_t* blocks, int64_t visible,
            int64_t block_tokens, int64_t stride, int64_t any_size) {
  constexpr int64_t ROOM = SIZE ? SIZE : MOST_SIZE;
  const int64_t size = SIZE ? SIZE : any_size;
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  float scaled[GROUP][ROOM], sum[GROUP][ROOM], scores[GROUP][TILE], row[ROOM], largest[GROUP], weight_sum[GROUP];
  for (int64_t g = 0; g < GROUP; g++) {
    for (int64_t i = 0; i < size; i++) scaled[g][i] = load(query[g * size + i]) * scale, sum[g][i] = 0;
    largest[g] = -std::numeric_limits<float>::infinity();
    weight_sum[g] = 0;
  }
  int64_t offsets[TILE], block = 0, inside = 0;
  for (int64_t start = 0; start < visible; start += TILE) {
    const int64_t count = std::min(TILE, visible - start);
    for (int64_t j = 0; j < count; j++) {
      offsets[j] = (blocks[block] * block_tokens + inside) * stride;
      prefetch(keys + offsets[j], size);
      if (++inside == block_tokens) inside = 0, block++;
    }
    for (int64_t j = 0; j < count; j++) {
      const T* key = keys + offsets[j];
      prefetch(values + offsets[j], size);
      for (int64_t i = 0; i < size; i++) row[i] = load(key[i]);
      for (int64_t g = 0; g < GROUP; g++) {
        float product = 0;
        for (int64_t i = 0; i < size; i++) product += scaled[g][i] * row[i];
        scores[g][j] = product;
      }
    }
    for (int64_t g = 0; g < GROUP; g++) {
      float most = largest[g], tile_sum = 0;
      for (int64_t j = 0; j < count; j++) most = std::max(most, scores[g][j]);
      const float shrink = std::exp(largest[g] - most);
      for (int64_t j = 0; j < count; j++) tile_sum += scores[g][j] = exponential(scores[g][j] - most);
      for (int64_t i = 0; i < size; i++) sum[g][i] *= shrink;
      weight_sum[g] = weight_sum[g] * shrink + tile_sum;
      largest[g] = most;
    }
    for (int64_t j = 0; j < count; j++) {
      const T* value = values + offsets[j];
      for (int64_t i = 0; i < size; i++) row[i] = load(value[i]);
      for (int64_t g = 0; g < GROUP; g++)
        for (int64_t i = 0; i < size; i++) sum[g][i] += scores[g][j] * row[i];
    }
  }
  for (int64_t g = 0; g < GROUP; g++)
    for (int64_t i = 0; i < size; i++) store(&out[g * size + i], sum[g][i] / weight_sum[g]);
}

// The same for any number of query heads, up to four at a time.
template <typename T, int64_t SIZE>
void attend_group(const T* query, T* out, const T* keys, const T* values, const int32_t* blocks, int64_t visible,
                  int64_t block_tokens, int64_t stride, int64_t size, int64_t group) {
  for (int64_t done = 0; done < group; done += 4) {
    const auto part = group - done == 1   ? attend<T, SIZE, 1>
                      : group - done == 2 ? attend<T, SIZE, 2>
                      : group - done == 3 ? attend<T, SIZE, 3>
                                          : attend<T, SIZE, 4>;
    part(query + done * size, out + done * size, keys, values, blocks, visible, block_tokens, stride, size);
  }
}

// Sequences that have one new token each: `sequences` are their places in the step.
template <typename T>
void attend_decodes(const T* query, T* out, const T* keys, const T* values, const int64_t* sequences, int64_t count,
                    const int32_t* query_starts, const int32_t* sequence_tokens, const int32_t* block_tables,
                    int64_t table_stride, int64_t heads, int64_t kv_heads, int64_t size, int64_t block_tokens,
                    int threads) {
  const int64_t group = heads / kv_heads;
  const auto kernel = size == 64 ? attend_group<T, 64> : size == 128 ? attend_group<T, 128> : attend_group<T, 0>;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int64_t task = 0; task < count * kv_heads; task++) {
    const int64_t sequence = sequences[task / kv_heads], head = task % kv_heads;
    const int64_t at = (query_starts[sequence] * heads + head * group) * size;
    kernel(query + at, out + at, keys + head * size, values + head * size, block_tables + sequence * table_stride,
           sequence_tokens[sequence], block_tokens, kv_heads * size, size, group);
  }
}

}  // namespace

#define EXPORT(T, SUFFIX)                                                                                              \
  extern "C" void add_rms_norm_##SUFFIX(const T* weight, const T* update, float* residual, T* out, int64_t rows,       \
                                        int64_t size, float epsilon, int threads) {                                    \
    add_rms_norm(weight, update, residual, out, rows, size, epsilon, threads);                                         \
  }                                                                                                                    \
  extern "C" void rotate_and_store_##SUFFIX(const T* qkv, const float* cosines, const float* sines,                    \
                                            const int64_t* slots, T* query, T* keys, T* values, int64_t rows,          \
                                            int64_t heads, int64_t kv_heads, int64_t size, int threads) {              \
    rotate_and_store(qkv, cosines, sines, slots, query, keys, values, rows, heads, kv_heads, size, threads);           \
  }                                                                                                                    \
  extern "C" void gated_silu_##SUFFIX(const T* gate_up, T* out, int64_t rows, int64_t size, int threads) {             \
    gated_silu(gate_up, out, rows, size, threads);                                                                     \
  }                                                                                                                    \
  extern "C" void attend_decodes_##SUFFIX(                                                                             \
      const T* query, T* out, const T* keys, const T* values, const int64_t* sequences, int64_t count,                 \
      const int32_t* query_starts, const int32_t* sequence_tokens, const int32_t* block_tables,                        \
      int64_t table_stride, int64_t heads, int64_t kv_heads, int64_t size, int64_t block_tokens, int threads) {        \
    attend_decodes(query, out, keys, values, sequences, count, query_starts, sequence_tokens, block_tables,            \
                   table_stride, heads, kv_heads, size, block_tokens, threads);                                        \
  }

EXPORT(float, f32)
EXPORT(bf16, bf16)
