// The processor's matrix units (AMX): tiles of 16 rows of 64 bytes, and how bfloat16 numbers must lie in them.

#pragma once

#include "numbers.h"

#ifdef __AMX_BF16__

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

// Numbers of a tile that stand in pairs, 16 rows of 16 pairs; the first factor has rows of 32 numbers.
constexpr int64_t TILE_SIDE = 16, TILE_INNER = 32, TILE_NUMBERS = TILE_SIDE * TILE_INNER;

// Linux hands the tiles' registers out on request only (arch_prctl, ARCH_REQ_XCOMP_PERM for tile data).
inline bool request_matrix_units() {
  constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18;
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

// Compilers do not know what a tile instruction reads from memory: all that was stored before must be there by now.
inline void settle() { asm volatile("" ::: "memory"); }

// Holds the calling thread's tiles. They compute blocks of up to 2 × 2 tiles of sums: 0 and 1 are the upper and lower
// one on the left, 2 and 3 on the right; 4 and 5 hold the first factor (upper, lower), 6 and 7 the second (left, right).
class MatrixUnits {
 public:
  explicit MatrixUnits(int64_t upper = TILE_SIDE, int64_t lower = TILE_SIDE) { shape(upper, lower); }
  ~MatrixUnits() { _tile_release(); }
  MatrixUnits(const MatrixUnits&) = delete;
  MatrixUnits& operator=(const MatrixUnits&) = delete;

  // How many rows the upper and lower tiles have from now on; clears all tiles.
  void shape(int64_t upper, int64_t lower) {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {};
    } config;
    for (int tile = 0; tile < 8; tile++)
      config.rows[tile] = static_cast<uint8_t>(tile > 5 ? TILE_SIDE : tile % 2 ? lower : upper);
    settle();
    _tile_loadconfig(&config);
  }
};

template <bool LOWER, bool RIGHT>
void clear_sums() {
  _tile_zero(0);
  if (LOWER) _tile_zero(1);
  if (RIGHT) _tile_zero(2);
  if (LOWER && RIGHT) _tile_zero(3);
}

// `pitch` is in numbers, from row to row.
template <bool LOWER, bool RIGHT>
void load_sums(const float* from, int64_t pitch) {
  settle();
  _tile_loadd(0, from, pitch * sizeof(float));
  if (LOWER) _tile_loadd(1, from + TILE_SIDE * pitch, pitch * sizeof(float));
  if (RIGHT) _tile_loadd(2, from + TILE_SIDE, pitch * sizeof(float));
  if (LOWER && RIGHT) _tile_loadd(3, from + TILE_SIDE * (pitch + 1), pitch * sizeof(float));
}

template <bool LOWER, bool RIGHT>
void store_sums(float* to, int64_t pitch) {
  _tile_stored(0, to, pitch * sizeof(float));
  if (LOWER) _tile_stored(1, to + TILE_SIDE * pitch, pitch * sizeof(float));
  if (RIGHT) _tile_stored(2, to + TILE_SIDE, pitch * sizeof(float));
  if (LOWER && RIGHT) _tile_stored(3, to + TILE_SIDE * (pitch + 1), pitch * sizeof(float));
  settle();
}

// Adds the products of 32 numbers to the sums. `pitch` leads from row to row of the first factor, `lower` to its lower
// tile; the second factor's right tile follows its left one.
template <bool LOWER, bool RIGHT>
void add_products(const bf16* first, int64_t pitch, int64_t lower, const bf16* second) {
  _tile_loadd(4, first, pitch * sizeof(bf16));
  _tile_loadd(6, second, 64);
  _tile_dpbf16ps(0, 4, 6);
  if (RIGHT) {
    _tile_loadd(7, second + TILE_NUMBERS, 64);
    _tile_dpbf16ps(2, 4, 7);
  }
  if (LOWER) {
    _tile_loadd(5, first + lower, pitch * sizeof(bf16));
    _tile_dpbf16ps(1, 5, 6);
    if (RIGHT) _tile_dpbf16ps(3, 5, 7);
  }
}

// 16 × 16 words of 32 bits, rows to columns.
inline void transpose(__m512i* r) {
  __m512i t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2)
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]), t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; j++) {
      r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
      r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
    }
#pragma GCC unroll 16
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88), t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88), r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

}  // namespace

#endif
