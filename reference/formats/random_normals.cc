#include "reference/formats/random_normals.h"

#include <array>
#include <cmath>
#include <cstddef>

#include "reference/formats/random_signs.h"

namespace kvcheck {
namespace {

constexpr size_t kLayers = 256;
constexpr double kTailStart = 3.6541528853610088;  // r
constexpr double kPlaces = 0x1p23;                 // of a layer

// Layer i lies between x_{i-1} and x_i and between the densities of both; layer 0 is the base,
// which has the tail. All have one area.
struct Layers {
  std::array<float, kLayers> width;        // x_i over the places
  std::array<uint32_t, kLayers> accepted;  // places below are under the curve for certain
  std::array<float, kLayers> density;      // at x_i

  Layers() {
    const auto of = [](double x) { return std::exp(-0.5 * x * x); };
    const double tail = std::sqrt(std::acos(-1.0) / 2) * std::erfc(kTailStart / std::sqrt(2.0));
    const double area = kTailStart * of(kTailStart) + tail;
    std::array<double, kLayers> x;
    x[kLayers - 1] = kTailStart;
    for (size_t i = kLayers - 1; i > 1; --i) {
      x[i - 1] = std::sqrt(-2 * std::log(area / x[i] + of(x[i])));
    }
    x[0] = 0;
    for (size_t i = 0; i < kLayers; ++i) {
      const double edge = i == 0 ? area / of(kTailStart) : x[i];
      const double inner = i == 0 ? kTailStart : x[i - 1];
      width[i] = static_cast<float>(edge / kPlaces);
      accepted[i] = static_cast<uint32_t>(inner / edge * kPlaces + 0.5);
      density[i] = static_cast<float>(of(x[i]));
    }
  }
};

// Halves of 64-bit words, the low one first.
class Halves {
 public:
  explicit Halves(uint32_t seed) : random_(seed) {}
  uint32_t Next() {
    has_high_ = !has_high_;
    if (!has_high_) return static_cast<uint32_t>(word_ >> 32);
    word_ = random_.Next();
    return static_cast<uint32_t>(word_);
  }
  float Uniform() { return static_cast<float>(Next() >> 8) * 0x1p-24f; }

 private:
  Pcg64 random_;
  uint64_t word_ = 0;
  bool has_high_ = false;
};

float Log1p(float x) { return static_cast<float>(std::log1p(static_cast<double>(x))); }

// Beyond r, by Marsaglia's method ("Generating a variable from the tail of the normal
// distribution", 1964).
float Tail(Halves* random) {
  const auto inverse = static_cast<float>(1 / kTailStart);
  const auto start = static_cast<float>(kTailStart);
  while (true) {
    const float beyond = -inverse * Log1p(-random->Uniform());
    const float other = -Log1p(-random->Uniform());
    if (other + other > beyond * beyond) return start + beyond;
  }
}

float Deviate(const Layers& layers, Halves* random) {
  while (true) {
    const uint32_t half = random->Next();
    const size_t layer = half & 0xff;
    const uint32_t place = half >> 9;
    const float x = static_cast<float>(place) * layers.width[layer];
    const bool negative = (half >> 8 & 1) != 0;
    if (place < layers.accepted[layer]) return negative ? -x : x;
    if (layer == 0) {
      // Its sign is another bit: that of the place, which decides nothing here.
      const float beyond = Tail(random);
      return (place >> 8 & 1) != 0 ? -beyond : beyond;
    }
    const float height = (layers.density[layer - 1] - layers.density[layer]) * random->Uniform() +
                         layers.density[layer];
    const double exact = static_cast<double>(x);
    if (static_cast<double>(height) < std::exp(-0.5 * exact * exact)) return negative ? -x : x;
  }
}

}  // namespace

std::vector<float> RandomNormals(uint32_t seed, int64_t count) {
  static const Layers layers;
  Halves random(seed);
  std::vector<float> deviates;
  deviates.reserve(static_cast<size_t>(count));
  while (static_cast<int64_t>(deviates.size()) < count) {
    deviates.push_back(Deviate(layers, &random));
  }
  return deviates;
}

}  // namespace kvcheck
