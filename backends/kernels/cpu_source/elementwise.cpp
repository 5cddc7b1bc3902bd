// The operations of a step that work token by token: norm, rotation with cache write, gate. Shapes: see interface.py.

#include "numbers.h"

namespace {

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
  }

EXPORT(float, f32)
EXPORT(bf16, bf16)
