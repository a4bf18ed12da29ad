// iq4_nl as llama.cpp writes it into a KV cache, one f32 operation at a time (formats.md, section
// C): codes are the nearest entries of a table to x / d0, d0 = M / -127 for the element M of
// largest magnitude; then d = sum(x^2 v x) / sum(x^2 v v) over the entries v, and the codes stay.
// (Files of weights come from a longer search, which caches never run.)

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "reference/formats/ggml_blocks.h"
#include "reference/numerics/convert.h"
#include "reference/spec/iq4_nl_format.h"

namespace kvcheck {
namespace {

constexpr std::array<int, 16> kTable = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};
// A block below it has the scale 0, and codes of whatever block came before.
constexpr float kLeastMagnitude = 1e-15f;

// ggml's bisection; a value in the middle of two entries takes the upper one.
uint8_t NearestEntry(float steps) {
  if (steps <= static_cast<float>(kTable.front())) return 0;
  if (steps >= static_cast<float>(kTable.back())) return 15;
  size_t below = 0, above = 15;
  while (above - below > 1) {
    const size_t middle = (below + above) / 2;
    (steps < static_cast<float>(kTable[middle]) ? above : below) = middle;
  }
  const float to_lower = steps - static_cast<float>(kTable[above - 1]);
  const float to_upper = static_cast<float>(kTable[above]) - steps;
  return static_cast<uint8_t>(to_lower < to_upper ? above - 1 : above);
}

struct Found {
  std::array<uint8_t, kGgmlBlock> codes{};
  float scale = 0;       // as f32 sums it, in the order of the channels
  double exact = 0;      // to 2^-46, relatively
  bool has_sums = true;  // whether f32 holds them
};

Found Find(GgmlValues x) {
  Found found;
  const float largest = LargestElement(x);
  if (std::fabs(largest) < kLeastMagnitude) return found;
  const float reciprocal = 1.0f / (largest / static_cast<float>(kTable.front()));
  float above = 0, below = 0;
  double exact_above = 0, exact_below = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    found.codes[i] = NearestEntry(reciprocal * x[i]);
    const auto entry = static_cast<float>(kTable[found.codes[i]]);
    const float weight = x[i] * x[i];
    above += weight * entry * x[i];
    below += weight * entry * entry;
    const double value = x[i];
    exact_above += value * value * value * entry;
    exact_below += value * value * entry * entry;
  }
  found.scale = below > 0 ? above / below : 0.0f;
  found.exact = exact_above / exact_below;
  found.has_sums = std::isfinite(above) && std::isfinite(below);
  return found;
}

void Encode(GgmlEncoder, GgmlValues x, std::byte* block) {
  const Found found = Find(x);
  WriteHalf(found.scale, block);
  WriteNibbles(found.codes, block + 2);
}

GgmlCodes Read(const std::byte* block) {
  GgmlCodes read;
  read.scale = ReadHalf(block);
  ReadNibbles(block + 2, read.codes);
  for (int& code : read.codes) code = kTable[static_cast<size_t>(code)];
  return read;
}

// How far d is from exact, in units of |d|: 3 roundings of a term and 31 of its additions, in
// either sum, and one of the quotient; terms above of the other sign are 1.4e-3 of the rest at most
// (31 values of -4.5 d0 beside one of 127 d0). Whatever the order of the sums, fused or not.
constexpr double kSumsError = 70 * 0x1p-24;

double HalfRounding(double d) { return std::max(0x1p-11 * d, 0x1p-25); }

GgmlErrors Errors(GgmlValues x) {
  const Found found = Find(x);
  const double d = found.exact;
  // What an entry is multiplied by is off by this much, of ours and of any other code.
  const double of_sums = kSumsError * (std::fabs(d) + HalfRounding(std::fabs(d)));
  GgmlErrors errors;
  errors.scale = std::fabs(d) * (1 + kSumsError);
  for (size_t i = 0; i < x.size(); ++i) {
    GgmlElement& element = errors.elements[i];
    const double value = x[i];
    element.next = std::numeric_limits<double>::infinity();
    for (size_t code = 0; code < kTable.size(); ++code) {
      const double entry = kTable[code];
      const double distance = std::fabs(value - entry * d);
      const double roundings = std::fabs(entry) * (HalfRounding(errors.scale) + of_sums);
      if (code != found.codes[i]) {
        element.next = std::min(element.next, distance - roundings);
        continue;
      }
      element.code = distance;
      element.largest_code = std::fabs(entry);
      element.encoder = std::fabs(entry) * of_sums;
    }
  }
  return errors;
}

std::vector<GgmlFreedom> Freedoms(GgmlValues x) {
  const Found found = Find(x);
  std::vector<GgmlFreedom> freedoms;
  const auto half = [](double value) { return Encode(DType::kFloat16, value); };
  const uint64_t stored = half(found.scale);
  if ((stored & 0x7fff) == 0) {
    if (found.scale == 0) {
      freedoms.push_back({.byte = 1, .reason = kSignOfZeroScale, .any = false, .free_bits = 0x80});
    }
    for (int64_t byte = 2; byte < Iq4NlFormat::kBlockBytes; ++byte) {
      freedoms.push_back({.byte = byte, .reason = kBlockWithoutScale});
    }
    return freedoms;
  }
  if (!found.has_sums) {
    for (const int64_t byte : {0, 1}) {
      freedoms.push_back({.byte = byte, .reason = kRangeBeyondFloat});
    }
    return freedoms;
  }
  // Each byte for itself: where the lower one wraps, the two of them may come from either number.
  for (const double end : {found.exact * (1 - kSumsError), found.exact * (1 + kSumsError)}) {
    const uint64_t other = half(end);
    for (int64_t byte = 0; byte < 2; ++byte) {
      const uint64_t value = other >> (8 * byte) & 0xff;
      if (value == (stored >> (8 * byte) & 0xff)) continue;
      freedoms.push_back(
          {.byte = byte, .reason = kScaleBetweenHalves, .any = false, .value = value});
    }
  }
  return freedoms;
}

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const Iq4NlFormat&) {
  return MakeGgmlArithmetic({.block_bytes = Iq4NlFormat::kBlockBytes,
                             .first_code = 2,
                             .lowest = Iq4NlFormat::kLowest,
                             .highest = Iq4NlFormat::kHighest,
                             .arithmetic_of_value = 0,
                             .arithmetic_of_step = 0,
                             .depends_on_writer = false,
                             .free_bits_of_zeros = 0,
                             .step = nullptr,
                             .minimum = nullptr,
                             .encode = Encode,
                             .read = Read,
                             .errors = Errors,
                             .freedoms = Freedoms});
}

}  // namespace kvcheck
