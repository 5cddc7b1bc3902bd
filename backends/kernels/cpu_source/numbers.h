// Number formats and the exponential function, for every kernel.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

// bfloat16 is stored as its 16 bits; all arithmetic is float32.
struct bf16 {
  uint16_t bits;
};

namespace {

constexpr float INFINITE = std::numeric_limits<float>::infinity();

inline float load(float value) { return value; }

inline float load(bf16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
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

}  // namespace
