// Matrix products of bfloat16 rows with packed weights on the matrix units: one copy of the weights serves a single
// row, which is bound by reading them, and hundreds of rows alike. Sums are float32.

#include "matrix_units.h"

// Whether this process may run the library's instructions; to be called once, before anything else.
extern "C" int prepare() {
#ifdef __AMX_BF16__
  return request_matrix_units();
#else
  return 1;
#endif
}

#ifdef __AMX_BF16__

namespace {

// Outputs of a panel; a panel's weights follow each other, for each 32 inputs its left and its right tile.
constexpr int64_t PANEL = 2 * TILE_SIDE, MOST_ROWS = 2 * TILE_SIDE;
// 32 rows of so many inputs stay in the first cache while a group of panels streams past them; a group of so many bytes
// stays in the second one for the next 32 rows.
constexpr int64_t CHUNK = 576, GROUP_BYTES = 512 << 10, MOST_GROUP = 16;
// Numbers that a panel is asked for ahead of its use: reading from memory has to overlap with computing.
constexpr int64_t AHEAD = 1024;

inline void write(const float* sums, bf16* to, int64_t count) {
  const __m512i numbers = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(_mm512_load_ps(sums + 16), _mm512_load_ps(sums)));
  const auto mask = static_cast<__mmask32>((uint64_t{1} << count) - 1);
  _mm512_mask_storeu_epi16(to, mask, numbers);
}

inline void write(const float* sums, float* to, int64_t count) {
  std::memcpy(to, sums, count * sizeof(float));
}

// The products of up to 32 rows with one panel's weights for `inputs` inputs; what `sums` holds is added unless `first`.
template <bool LOWER>
void add_panel(const bf16* rows, int64_t pitch, const bf16* panel, int64_t inputs, bool first, float* sums) {
  if (first) clear_sums<LOWER, true>();
  else load_sums<LOWER, true>(sums, PANEL);
  for (int64_t input = 0; input < inputs; input += TILE_INNER, panel += 2 * TILE_NUMBERS) {
    if (!LOWER)
      for (int64_t line = 0; line < 2 * TILE_NUMBERS; line += TILE_INNER) __builtin_prefetch(panel + AHEAD + line);
    add_products<LOWER, true>(rows + input, pitch, TILE_SIDE * pitch, panel);
  }
  store_sums<LOWER, true>(sums, PANEL);
}

// Up to 32 rows times a group of panels that give the outputs from `first_output` on.
template <bool LOWER, typename T>
void multiply_group(const bf16* rows, const bf16* group, int64_t panels, const bf16* bias, T* out, int64_t row_count,
                    int64_t inputs, int64_t outputs, int64_t first_output) {
  alignas(64) float sums[MOST_GROUP * MOST_ROWS * PANEL];
  settle();
  for (int64_t input = 0; input < inputs; input += CHUNK)
    for (int64_t at = 0; at < panels; at++)
      add_panel<LOWER>(rows + input, inputs, group + (at * inputs + input) * PANEL, std::min(CHUNK, inputs - input),
                       input == 0, sums + at * MOST_ROWS * PANEL);
  for (int64_t row = 0; row < row_count; row++)
    for (int64_t at = 0; at < panels; at++) {
      const int64_t output = first_output + at * PANEL, count = std::min(PANEL, outputs - output);
      float* from = sums + (at * MOST_ROWS + row) * PANEL;
      if (bias)
        for (int64_t i = 0; i < count; i++) from[i] += load(bias[output + i]);
      write(from, out + row * outputs + output, count);
    }
}

// All rows times the panels from `first` up to `end`.
template <typename T>
void multiply_panels(MatrixUnits& units, const bf16* rows, const bf16* packed, const bf16* bias, T* out,
                     int64_t row_count, int64_t inputs, int64_t outputs, int64_t first, int64_t end) {
  const int64_t group = std::clamp<int64_t>(GROUP_BYTES / (PANEL * inputs * sizeof(bf16)), 1, MOST_GROUP);
  const int64_t whole = row_count / MOST_ROWS * MOST_ROWS, rest = row_count - whole;
  const auto part = rest > TILE_SIDE ? multiply_group<true, T> : multiply_group<false, T>;
  for (int64_t at = first; at < end; at += group) {
    const bf16* panels = packed + at * PANEL * inputs;
    const int64_t count = std::min(group, end - at), output = at * PANEL;
    if (whole) units.shape(TILE_SIDE, TILE_SIDE);
    for (int64_t row = 0; row < whole; row += MOST_ROWS)
      multiply_group<true>(rows + row * inputs, panels, count, bias, out + row * outputs, MOST_ROWS, inputs, outputs,
                           output);
    if (rest) units.shape(std::min(rest, TILE_SIDE), std::max<int64_t>(rest - TILE_SIDE, 1));
    if (rest) part(rows + whole * inputs, panels, count, bias, out + whole * outputs, rest, inputs, outputs, output);
  }
}

template <typename T>
void multiply(const bf16* rows, const bf16* packed, const bf16* bias, T* out, int64_t row_count, int64_t inputs,
              int64_t outputs, int threads) {
  const int64_t panels = (outputs + PANEL - 1) / PANEL;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int64_t thread = 0; thread < threads; thread++) {
    MatrixUnits units;
    multiply_panels(units, rows, packed, bias, out, row_count, inputs, outputs, panels * thread / threads,
                    panels * (thread + 1) / threads);
  }
}

}  // namespace

// `weight` [outputs][inputs] → panels; inputs are a multiple of 32, missing outputs of the last panel become zeros.
extern "C" void pack_weight(const bf16* weight, bf16* packed, int64_t inputs, int64_t outputs) {
  const int64_t panels = (outputs + PANEL - 1) / PANEL;
  for (int64_t panel = 0; panel < panels; panel++)
    for (int64_t input = 0; input < inputs; input += TILE_INNER)
      for (int64_t output = panel * PANEL; output < (panel + 1) * PANEL; output += TILE_SIDE, packed += TILE_NUMBERS) {
        __m512i rows[TILE_SIDE];
        for (int64_t i = 0; i < TILE_SIDE; i++)
          rows[i] = output + i < outputs ? _mm512_loadu_si512(weight + (output + i) * inputs + input)
                                         : _mm512_setzero_si512();
        transpose(rows);
        for (int64_t i = 0; i < TILE_SIDE; i++) _mm512_storeu_si512(packed + i * TILE_INNER, rows[i]);
      }
}

extern "C" void multiply_bf16(const bf16* rows, const bf16* packed, const bf16* bias, bf16* out, int64_t row_count,
                              int64_t inputs, int64_t outputs, int threads) {
  multiply(rows, packed, bias, out, row_count, inputs, outputs, threads);
}

extern "C" void multiply_f32(const bf16* rows, const bf16* packed, const bf16* bias, float* out, int64_t row_count,
                             int64_t inputs, int64_t outputs, int threads) {
  multiply(rows, packed, bias, out, row_count, inputs, outputs, threads);
}

#endif
