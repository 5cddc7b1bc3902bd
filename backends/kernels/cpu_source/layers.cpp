// All layers of a step in one call: with a few rows, returning to Python between the operations would cost as much as
// a quarter of the step. The operations are the exported ones, in the order of Llama.forward.

#include "matrix_units.h"

#ifdef __AMX_BF16__

extern "C" {

void add_rms_norm_bf16(const bf16* weight, const bf16* update, float* residual, bf16* out, int64_t rows, int64_t size,
                       float epsilon, int threads);
void rotate_and_store_bf16(const bf16* qkv, const float* cosines, const float* sines, const int64_t* slots, bf16* query,
                           bf16* keys, bf16* values, int64_t rows, int64_t heads, int64_t kv_heads, int64_t size,
                           int threads);
void gated_silu_bf16(const bf16* gate_up, bf16* out, int64_t rows, int64_t size, int threads);
void paged_attention_bf16(const bf16* query, bf16* out, const bf16* keys, const bf16* values,
                          const int32_t* query_starts, const int32_t* sequence_tokens, const int32_t* block_tables,
                          int64_t sequences, int64_t table_stride, int64_t heads, int64_t kv_heads, int64_t size,
                          int64_t block_tokens, int64_t parts, int threads);
void multiply_bf16(const bf16* rows, const bf16* packed, const bf16* bias, bf16* out, int64_t row_count, int64_t inputs,
                   int64_t outputs, int threads);

// Pointers of one layer, in the order of cpu_layers.py.
struct Layer {
  const bf16 *attention_norm, *qkv, *qkv_bias, *attention_output, *attention_output_bias, *mlp_norm, *gate_up, *down;
};

struct LayerMemory {
  bf16 *keys, *values;
};

// Sizes in the order of cpu_layers.py.
struct Shape {
  int64_t layers, hidden, intermediate, heads, kv_heads, head_size, block_tokens, parts;
};

// One step's tensors. `update`, `hidden`, `wide`, `query` and `narrow` are room for what each operation hands to the
// next; the last layer's update of `residual` is left in `update`.
struct StepTensors {
  float* residual;
  const float *cosines, *sines;
  const int64_t* slots;
  const int32_t *query_starts, *sequence_tokens, *block_tables;
  bf16 *update, *hidden, *wide, *query, *narrow;
};

void run_layers(const Layer* layers, const LayerMemory* memory, const Shape* shape, const StepTensors* step,
                int64_t rows, int64_t sequences, int64_t table_stride, float epsilon, int threads) {
  const Shape& s = *shape;
  const int64_t attention = s.heads * s.head_size, qkv = attention + 2 * s.kv_heads * s.head_size;
  for (int64_t at = 0; at < s.layers; at++) {
    const Layer& layer = layers[at];
    const LayerMemory& cache = memory[at];
    add_rms_norm_bf16(layer.attention_norm, at ? step->update : nullptr, step->residual, step->hidden, rows, s.hidden,
                      epsilon, threads);
    multiply_bf16(step->hidden, layer.qkv, layer.qkv_bias, step->wide, rows, s.hidden, qkv, threads);
    rotate_and_store_bf16(step->wide, step->cosines, step->sines, step->slots, step->query, cache.keys, cache.values,
                          rows, s.heads, s.kv_heads, s.head_size, threads);
    paged_attention_bf16(step->query, step->narrow, cache.keys, cache.values, step->query_starts, step->sequence_tokens,
                         step->block_tables, sequences, table_stride, s.heads, s.kv_heads, s.head_size, s.block_tokens,
                         s.parts, threads);
    multiply_bf16(step->narrow, layer.attention_output, layer.attention_output_bias, step->update, rows, attention,
                  s.hidden, threads);
    add_rms_norm_bf16(layer.mlp_norm, step->update, step->residual, step->hidden, rows, s.hidden, epsilon, threads);
    multiply_bf16(step->hidden, layer.gate_up, nullptr, step->wide, rows, s.hidden, 2 * s.intermediate, threads);
    gated_silu_bf16(step->wide, step->narrow, rows, s.intermediate, threads);
    multiply_bf16(step->narrow, layer.down, nullptr, step->update, rows, s.intermediate, s.hidden, threads);
  }
}

}  // extern "C"

#endif
