#include "reference/formats/turboquant_prod.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <mutex>
#include <numbers>

#include "reference/formats/random_normals.h"
#include "reference/formats/turboquant_rotation.h"
#include "reference/spec/error.h"

namespace kvcheck {

TurboquantProd::TurboquantProd(int64_t d, const std::optional<TurboquantFormat>& mse,
                               std::span<const float> projection)
    : d_(static_cast<size_t>(d)), projection_(projection) {
  KVCHECK_CHECK(projection.size() == d_ * d_, "the projection is no d x d matrix");
  if (!mse) return;
  KVCHECK_CHECK(mse->group_size == d, "codes of another dimension");
  mse_.emplace(*mse, TurboquantWriter::kMlxVlm);
}

TurboquantProd::TurboquantProd(const TurboquantProdFormat& format)
    : d_(static_cast<size_t>(format.group_size)),
      kept_(TurboquantProjection(format.seed, format.group_size)),
      projection_(*kept_) {
  if (const auto codes = format.Codes()) mse_.emplace(*codes, TurboquantWriter::kMlxVlm);
}

float TurboquantProd::scale() const {
  return static_cast<float>(std::sqrt(std::numbers::pi / 2) / static_cast<double>(d_));
}

// Q(u); zeros where there are no codes.
std::vector<float> TurboquantProd::Unit(std::span<const uint8_t> codes) const {
  std::vector<float> unit(d_, 0.0f);
  if (mse_) mse_->Decode(codes, 1.0f, unit);
  return unit;
}

TurboquantProdGroup TurboquantProd::Encode(std::span<const float> x) const {
  TurboquantProdGroup group;
  if (mse_) {
    group.codes.resize(d_);
    group.norm = mse_->Encode(x, group.codes);
  } else {
    group.norm = TurboquantGroup::Norm(x);
  }
  const std::vector<float> residual = Residual(x, group.norm, group.codes);
  group.residual_norm = TurboquantGroup::Norm(residual);
  for (const double sum : Project(residual)) group.signs.push_back(sum >= 0 ? 1 : 0);
  return group;
}

std::vector<float> TurboquantProd::Residual(std::span<const float> x, float norm,
                                            std::span<const uint8_t> codes) const {
  std::vector<float> residual = Unit(codes);
  const float divisor = std::max(norm, 1e-6f);
  for (size_t i = 0; i < d_; ++i) residual[i] = x[i] / divisor - residual[i];
  return residual;
}

std::vector<double> TurboquantProd::Project(std::span<const float> residual) const {
  std::vector<double> sums(d_, 0.0);
  for (size_t j = 0; j < d_; ++j) {
    for (size_t i = 0; i < d_; ++i) {
      sums[j] += static_cast<double>(projection_[j * d_ + i]) * static_cast<double>(residual[i]);
    }
  }
  return sums;
}

void TurboquantProd::Decode(const TurboquantProdGroup& group, std::span<float> out) const {
  const std::vector<float> unit = Unit(group.codes);
  std::vector<double> sums(d_, 0.0);
  for (size_t j = 0; j < d_; ++j) {
    for (size_t i = 0; i < d_; ++i) {
      const double s = static_cast<double>(projection_[j * d_ + i]);
      sums[i] += group.signs[j] != 0 ? s : -s;
    }
  }
  const float factor = scale() * group.residual_norm;
  for (size_t i = 0; i < d_; ++i) {
    const float of_signs = factor * static_cast<float>(sums[i]);
    out[i] = group.norm * (unit[i] + of_signs);
  }
}

double TurboquantProd::Score(std::span<const double> q, const TurboquantProdGroup& group) const {
  std::vector<double> unit(d_, 0.0);
  if (mse_) {
    for (size_t i = 0; i < d_; ++i) {
      unit[i] = static_cast<double>(mse_->centroids()[group.codes[i]]);
    }
    RotateBack<double>(mse_->signs(), unit);
  }
  double of_codes = 0, of_signs = 0;
  for (size_t i = 0; i < d_; ++i) of_codes += q[i] * unit[i];
  for (size_t j = 0; j < d_; ++j) {
    double projected = 0;
    for (size_t i = 0; i < d_; ++i) {
      projected += static_cast<double>(projection_[j * d_ + i]) * q[i];
    }
    of_signs += group.signs[j] != 0 ? projected : -projected;
  }
  const double scale = std::sqrt(std::numbers::pi / 2) / static_cast<double>(d_);
  return static_cast<double>(group.norm) *
         (of_codes + scale * static_cast<double>(group.residual_norm) * of_signs);
}

std::shared_ptr<const std::vector<float>> TurboquantProjection(int64_t seed, int64_t d) {
  struct Kept {
    int64_t seed, d;
    std::shared_ptr<const std::vector<float>> projection;
  };
  constexpr size_t kMostKept = 8;
  static std::mutex mutex;
  static std::deque<Kept> kept;
  const std::lock_guard lock(mutex);
  for (const Kept& one : kept) {
    if (one.seed == seed && one.d == d) return one.projection;
  }
  kept.push_front({seed, d,
                   std::make_shared<const std::vector<float>>(
                       RandomNormals(TurboquantProjectionSeed(seed, d), d * d))});
  if (kept.size() > kMostKept) kept.pop_back();
  return kept.front().projection;
}

}  // namespace kvcheck
