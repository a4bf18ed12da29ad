// TurboQuant's inner-product codec of one group: bits - 1 of the MSE codec, and one bit a
// coordinate of what they leave, projected by a matrix of normal deviates (QJL).
//
// Definition, of d channels x with the norm n, u = x / n, r = u - Q(u) under bits - 1 (r = u where
// bits = 1), gamma = |r|, S the d x d projection:
//   sign_j = +1 where (S r)_j >= 0, else -1;  n and gamma are stored as f16
//   x^ = n (Q(u) + sqrt(pi/2)/d gamma S^T sign)
// E <y, x^> = <y, x> over S for every x and y; the variance over S, codes given, is n^2 gamma^2/d
// (pi/2 |y|^2 - <y, r/gamma>^2).
// In f32, one operation at a time, but for sums over channels: those of both norms as
// TurboquantGroup::Norm takes them; those of S r and S^T sign in double, the first term first,
// where every product is exact.
// Source: turboquant.md, sections 1.7 and 2.2; QJL, arXiv 2406.03482.

#ifndef REFERENCE_FORMATS_TURBOQUANT_PROD_H_
#define REFERENCE_FORMATS_TURBOQUANT_PROD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "reference/formats/turboquant.h"
#include "reference/spec/turboquant_prod_format.h"

namespace kvcheck {

struct TurboquantProdGroup {
  std::vector<uint8_t> codes;  // of bits - 1; empty where there are none
  std::vector<uint8_t> signs;  // 1: +1
  float norm = 0;              // before it is stored as f16, or read from it; likewise:
  float residual_norm = 0;
};

class TurboquantProd {
 public:
  // mse: the format of the codes, whose group is d; nullopt: bits = 1. projection: d x d,
  // row-major, must outlive the codec.
  TurboquantProd(int64_t d, const std::optional<TurboquantFormat>& mse,
                 std::span<const float> projection);
  // With the projection of its seed.
  explicit TurboquantProd(const TurboquantProdFormat& format);

  size_t d() const { return d_; }
  // Of the codes; nullopt where there are none.
  const std::optional<TurboquantGroup>& mse() const { return mse_; }
  std::span<const float> projection() const { return projection_; }
  // fl(sqrt(pi/2)/d).
  float scale() const;

  TurboquantProdGroup Encode(std::span<const float> x) const;
  // u - Q(u), of x with this norm and these codes.
  std::vector<float> Residual(std::span<const float> x, float norm,
                              std::span<const uint8_t> codes) const;
  // S r.
  std::vector<double> Project(std::span<const float> residual) const;
  void Decode(const TurboquantProdGroup& group, std::span<float> out) const;
  // <q, x^> in double, the query in full precision.
  double Score(std::span<const double> q, const TurboquantProdGroup& group) const;

 private:
  std::vector<float> Unit(std::span<const uint8_t> codes) const;

  size_t d_;
  std::optional<TurboquantGroup> mse_;
  std::shared_ptr<const std::vector<float>> kept_;  // what projection_ points to, if it is its own
  std::span<const float> projection_;
};

// The d x d projection of a codec's seed, row-major: of mlx-vlm's definition (random_normals.h).
// The last few are kept. Thread-safe.
std::shared_ptr<const std::vector<float>> TurboquantProjection(int64_t seed, int64_t d);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_TURBOQUANT_PROD_H_
