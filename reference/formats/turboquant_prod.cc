#include "reference/formats/turboquant_prod.h"

#include <cmath>
#include <numbers>

#include "reference/formats/turboquant_rotation.h"
#include "reference/numerics/convert.h"
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

// Q(u); zeros where there are no codes.
std::vector<double> TurboquantProd::MseUnit(const TurboquantProdGroup& group) const {
  std::vector<double> unit(d_, 0.0);
  if (!mse_) return unit;
  for (size_t i = 0; i < d_; ++i) unit[i] = static_cast<double>(mse_->centroids()[group.codes[i]]);
  RotateBack<double>(mse_->signs(), unit);
  return unit;
}

TurboquantProdGroup TurboquantProd::Encode(std::span<const float> x) const {
  TurboquantProdGroup group;
  const float norm = TurboquantGroup::Norm(x);
  if (mse_) {
    group.codes.resize(d_);
    mse_->Encode(x, group.codes);
  }
  std::vector<double> residual = MseUnit(group);
  const double divisor = static_cast<double>(std::fmax(norm, 1e-6f));
  double square = 0;
  for (size_t i = 0; i < d_; ++i) {
    residual[i] = static_cast<double>(x[i]) / divisor - residual[i];
    square += residual[i] * residual[i];
  }
  for (size_t j = 0; j < d_; ++j) {
    double sum = 0;
    for (size_t i = 0; i < d_; ++i) {
      sum += static_cast<double>(projection_[j * d_ + i]) * residual[i];
    }
    group.signs.push_back(sum >= 0 ? 1 : 0);
  }
  group.norm = RoundTo(DType::kFloat16, static_cast<double>(norm));
  group.residual_norm = RoundTo(DType::kFloat16, std::sqrt(square));
  return group;
}

std::vector<double> TurboquantProd::Decode(const TurboquantProdGroup& group) const {
  std::vector<double> values = MseUnit(group);
  const double scale = std::sqrt(std::numbers::pi / 2) / static_cast<double>(d_);
  for (size_t j = 0; j < d_; ++j) {
    const double sign = group.signs[j] != 0 ? scale : -scale;
    for (size_t i = 0; i < d_; ++i) {
      values[i] += sign * group.residual_norm * static_cast<double>(projection_[j * d_ + i]);
    }
  }
  for (double& value : values) value *= group.norm;
  return values;
}

double TurboquantProd::Score(std::span<const double> q, const TurboquantProdGroup& group) const {
  const std::vector<double> unit = MseUnit(group);
  double of_codes = 0, of_signs = 0;
  for (size_t i = 0; i < d_; ++i) of_codes += q[i] * unit[i];
  for (size_t j = 0; j < d_; ++j) {
    double projected = 0;
    for (size_t i = 0; i < d_; ++i)
      projected += static_cast<double>(projection_[j * d_ + i]) * q[i];
    of_signs += group.signs[j] != 0 ? projected : -projected;
  }
  const double scale = std::sqrt(std::numbers::pi / 2) / static_cast<double>(d_);
  return group.norm * (of_codes + scale * group.residual_norm * of_signs);
}

}  // namespace kvcheck
