// A decoder of a few channels with drawn weights: two layers, the second with a window.

#ifndef TESTS_REFERENCE_MODEL_SMALL_MODEL_H_
#define TESTS_REFERENCE_MODEL_SMALL_MODEL_H_

#include <cstdint>
#include <vector>

#include "reference/spec/decoder.h"

namespace kvcheck::small_model {

// Numbers from -1 to 1, the same on every machine.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed) {}
  double operator()() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<double>(static_cast<int64_t>(state_)) * 0x1p-63;
  }

 private:
  uint64_t state_;
};

inline DecoderConfig Config() {
  DecoderConfig c;
  c.vocabulary = 11;
  c.hidden = 12;
  c.intermediate = 21;
  c.query_heads = 4;
  c.kv_heads = 2;
  c.head_dim = 6;
  c.rms_norm_eps = 1e-5;
  c.rope_theta = 100;
  c.tied_embeddings = false;
  c.windows = {0, 3};
  return c;
}

// f32. Norms near 1, matrices of a size that keeps rows of about the size of their inputs.
inline TensorMap Weights(const DecoderConfig& c, uint64_t seed = 1) {
  Draw draw(seed);
  TensorMap weights;
  for (const auto& [name, extents] : DecoderTensors(c)) {
    Tensor tensor(DType::kFloat32, Shape::Unnamed(extents));
    for (int64_t i = 0; i < tensor.ElementCount(); ++i) {
      tensor.As<float>()[i] = static_cast<float>(extents.size() == 1 ? 1 + 0.25 * draw() : draw());
    }
    weights[name] = std::move(tensor);
  }
  return weights;
}

inline std::vector<int64_t> Tokens(int64_t count) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back((7 * i * i + 3 * i) % 11);
  return tokens;
}

}  // namespace kvcheck::small_model

#endif  // TESTS_REFERENCE_MODEL_SMALL_MODEL_H_
