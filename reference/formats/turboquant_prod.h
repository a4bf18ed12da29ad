// TurboQuant's inner-product codec: bits - 1 of the MSE codec, and one bit a coordinate of what
// they leave, projected by a matrix of normal deviates (QJL). No library stores a cache in it, so
// it is no format; here it is what such a library is compared with.
//
// Definition, of d channels x with the norm n, u = x / n, r = u - Q(u) under bits - 1 (r = u where
// bits = 1), gamma = |r|, S the d x d projection:
//   sign_j = +1 where (S r)_j >= 0, else -1;  n and gamma are stored as f16
//   x^ = n (Q(u) + sqrt(pi/2)/d gamma S^T sign)
// E <y, x^> = <y, x> over S for every x and y; the variance over S, codes given, is n^2 gamma^2/d
// (pi/2 |y|^2 - <y, r/gamma>^2).
// Source: turboquant.md, sections 1.7 and 2.2; QJL, arXiv 2406.03482.

#ifndef REFERENCE_FORMATS_TURBOQUANT_PROD_H_
#define REFERENCE_FORMATS_TURBOQUANT_PROD_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reference/formats/turboquant.h"

namespace kvcheck {

struct TurboquantProdGroup {
  std::vector<uint8_t> codes;  // of bits - 1; empty where there are none
  std::vector<uint8_t> signs;  // 1: +1
  double norm = 0;             // f16
  double residual_norm = 0;    // f16
};

class TurboquantProd {
 public:
  // mse: the format of the codes, whose group is d; nullopt: bits = 1. projection: d x d,
  // row-major, must outlive the codec.
  TurboquantProd(int64_t d, const std::optional<TurboquantFormat>& mse,
                 std::span<const float> projection);

  // The residual is that of f32 codes and centroids, projected in double.
  TurboquantProdGroup Encode(std::span<const float> x) const;
  // x^, in double.
  std::vector<double> Decode(const TurboquantProdGroup& group) const;
  // <q, x^> with the query in full precision.
  double Score(std::span<const double> q, const TurboquantProdGroup& group) const;

 private:
  std::vector<double> MseUnit(const TurboquantProdGroup& group) const;

  size_t d_;
  std::optional<TurboquantGroup> mse_;
  std::span<const float> projection_;
};

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_TURBOQUANT_PROD_H_
