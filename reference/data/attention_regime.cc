#include "reference/data/attention_regime.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/data/generator.h"
#include "reference/data/row_regime.h"
#include "reference/numerics/convert.h"
#include "reference/spec/rounding.h"

namespace kvcheck {
namespace {

constexpr std::array<std::string_view, kGeneralRegimes + 1> kRegimes = {
    "gauss",      "outlier",  "sink",      "same_sign", "huge",   "constant", "equal",
    "duplicated", "dominant", "subnormal", "large_v",   "tiny_p", "zeros",    "disabled_sinks"};

// The largest magnitude that both types hold.
double LargestOf(DType a, DType b) {
  return std::min(FloatTypeOf(a).largest_finite, FloatTypeOf(b).largest_finite);
}

class AttentionData {
 public:
  explicit AttentionData(const AttentionCase& c) : c_(c), regime_(c.data.regime) {
    const double dim = static_cast<double>(c.k_dim);
    unit_score_ = std::fabs(c.scale) * std::sqrt(dim);
    // log T to within a factor of 1.5, without a logarithm.
    log_keys_ = 0.7 * static_cast<double>(std::bit_width(static_cast<uint64_t>(c.kv_len)));
  }

  Tensor Queries() const {
    const int64_t rows = c_.batch * c_.query_heads * c_.query_len;
    return Rows(rows, c_.k_dim, LargestOf(c_.q, c_.q),
                [&](int64_t row, auto& values) { QueryRow(row, values); });
  }

  Tensor Keys() const {
    return Rows(KeyRows(), c_.k_dim, LargestOf(c_.q, RangeDType(c_.k)),
                [&](int64_t row, auto& values) { KeyRow(row, values); });
  }

  Tensor Values() const {
    return Rows(KeyRows(), c_.v_dim, LargestOf(c_.q, RangeDType(c_.v)),
                [&](int64_t row, auto& values) { ValueRow(row, values); });
  }

  Tensor Mask() const;
  Tensor Sinks() const;
  Tensor Slopes() const;

 private:
  int64_t KeyRows() const { return c_.batch * c_.kv_heads * c_.kv_len; }

  Generator For(std::string_view stream, int64_t chunk) const {
    return Generator(c_.data.seed, stream, static_cast<uint64_t>(chunk));
  }

  template <typename Fill>
  Tensor Rows(int64_t rows, int64_t dim, double largest, Fill fill) const {
    Tensor tensor(c_.q, {{"", rows}, {"", dim}});
    const size_t row_bytes = static_cast<size_t>(dim) * SizeInBytes(c_.q);
    std::vector<double> values(static_cast<size_t>(dim));
    for (int64_t row = 0; row < rows; ++row) {
      fill(row, values);
      for (double& x : values) x = std::clamp(x, -largest, largest);
      EncodeFrom(values, c_.q, tensor.bytes.data() + static_cast<size_t>(row) * row_bytes,
                 {.overflow = Overflow::kSaturate});
    }
    return tensor;
  }

  void Gauss(Generator random, std::vector<double>& values) const {
    for (double& x : values) x = random.Gauss();
  }

  bool HasAlignedKey() const { return regime_ == "sink" || regime_ == "dominant"; }

  // What queries and the aligned key of a K/V head have in common: a row of signs.
  std::vector<double> Direction(int64_t kv_head) const {
    Generator random = For("direction", kv_head);
    std::vector<double> signs(static_cast<size_t>(c_.k_dim));
    for (double& x : signs) x = random.Sign();
    return signs;
  }

  // Factors of the channels of a K/V head under `outlier`.
  void ScaleOutliers(std::string_view stream, int64_t kv_head, std::vector<double>& values) const {
    Generator channels = For("outlier_channels", kv_head);
    Generator factors = For(stream, kv_head);
    const uint64_t dim = values.size();
    const uint64_t count = std::max<uint64_t>(1, dim / 32);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t first = i * dim / count;
      const uint64_t channel = first + channels.Below((i + 1) * dim / count - first);
      values[channel] *= static_cast<double>(factors.Between(10, 30));
    }
  }

  void QueryRow(int64_t row, std::vector<double>& values) const;
  void KeyRow(int64_t row, std::vector<double>& values) const;
  void ValueRow(int64_t row, std::vector<double>& values) const;

  const AttentionCase& c_;
  std::string_view regime_;
  double unit_score_;
  double log_keys_;
};

void AttentionData::QueryRow(int64_t row, std::vector<double>& values) const {
  if (regime_ == "zeros") return std::fill(values.begin(), values.end(), 0.0);
  Gauss(For("q", row), values);
  const int64_t head = row / c_.query_len % c_.query_heads;
  const int64_t batch = row / (c_.query_len * c_.query_heads);
  const int64_t kv_head = batch * c_.kv_heads + head / (c_.query_heads / c_.kv_heads);
  if (regime_ == "outlier") ScaleOutliers("outlier_q", kv_head, values);
  if (HasAlignedKey()) {
    const std::vector<double> direction = Direction(kv_head);
    for (size_t i = 0; i < values.size(); ++i) values[i] += direction[i];
  }
  const double target = regime_ == "huge" ? 3000.0 : regime_ == "tiny_p" ? 40.0 : 0.0;
  if (target > 0 && unit_score_ > 0) {
    for (double& x : values) x *= target / unit_score_;
  }
}

void AttentionData::KeyRow(int64_t row, std::vector<double>& values) const {
  if (regime_ == "zeros") return std::fill(values.begin(), values.end(), 0.0);
  const int64_t kv_head = row / c_.kv_len;
  const int64_t position = row % c_.kv_len;
  const int64_t first = row - position;
  if (regime_ == "equal") {
    Gauss(For("k", first), values);
    const size_t channel = For("equal_channel", kv_head).Below(values.size());
    if (position % 3 == 2) values[channel] *= 1 + 0x1p-7;
    return;
  }
  if (regime_ == "duplicated") {
    const int64_t period = std::max<int64_t>(1, c_.kv_len / 4);
    return Gauss(For("k", first + position % period), values);
  }
  if (HasAlignedKey()) {
    const int64_t aligned =
        regime_ == "sink"
            ? 0
            : static_cast<int64_t>(
                  For("dominant_position", kv_head).Below(static_cast<uint64_t>(c_.kv_len)));
    if (position == aligned) {
      // A query is N plus the direction, so its product with the direction is about Dk.
      const double score = log_keys_ + (regime_ == "sink" ? 6.0 : 40.0);
      const double length = c_.scale * static_cast<double>(c_.k_dim);
      values = Direction(kv_head);
      for (double& x : values) x *= length != 0 ? score / length : 0.0;
      return;
    }
  }
  Gauss(For("k", row), values);
  if (regime_ == "outlier") ScaleOutliers("outlier_k", kv_head, values);
}

void AttentionData::ValueRow(int64_t row, std::vector<double>& values) const {
  const DType row_dtype = RowDType(c_.v);
  Generator random = For("v", row);
  if (regime_ == "zeros") {
    std::fill(values.begin(), values.end(), 0.0);
  } else if (regime_ == "constant") {
    Gauss(For("v", row - row % c_.kv_len), values);
  } else if (regime_ == "subnormal") {
    const FloatType& own = FloatTypeOf(row_dtype);
    const FloatType& q = FloatTypeOf(c_.q);
    const FloatType& coarser = own.smallest_subnormal >= q.smallest_subnormal ? own : q;
    const int64_t count = (int64_t{1} << coarser.mantissa_bits) - 1;
    for (double& x : values) {
      x = static_cast<double>(random.Between(-count, count)) * coarser.smallest_subnormal;
    }
  } else if (regime_ == "large_v") {
    const double share = IsPlain(c_.v) ? 0.9 : 0.45;
    const double largest = std::min(1e30, share * LargestOf(c_.q, RangeDType(c_.v)));
    for (double& x : values) {
      const double sign = random.Sign();
      x = sign * largest * (0.5 + 0.5 * random.Uniform());
    }
  } else {
    Gauss(random, values);
    if (regime_ == "same_sign") {
      for (double& x : values) x = std::fabs(x);
    }
  }
}

Tensor AttentionData::Mask() const {
  const bool boolean = c_.mask.array == MaskArrayKind::kBoolean;
  Tensor tensor(boolean ? DType::kBool : c_.mask.additive_dtype,
                MaskShape(c_.mask.axes, c_.batch, c_.query_heads, c_.query_len, c_.kv_len));
  const int64_t length = tensor.shape.RowLength();
  const double hidden = boolean ? 0.0 : -std::numeric_limits<double>::infinity();
  const size_t row_bytes = static_cast<size_t>(length) * SizeInBytes(tensor.dtype);
  std::vector<double> values(static_cast<size_t>(length));
  for (int64_t row = 0; row < tensor.shape.RowCount(); ++row) {
    Generator random = For("mask", row);
    const uint64_t always_seen = random.Below(static_cast<uint64_t>(length));
    const bool all_hidden = (c_.data.seed & 1) != 0 && row % 7 == 3;
    for (size_t j = 0; j < values.size(); ++j) {
      const double bias = 8.0 * random.Uniform() - 4.0;
      const bool seen = random.Below(100) < (boolean ? 60 : 80) || j == always_seen;
      values[j] = !seen || all_hidden ? hidden : boolean ? 1.0 : bias;
    }
    EncodeFrom(values, tensor.dtype, tensor.bytes.data() + static_cast<size_t>(row) * row_bytes);
  }
  return tensor;
}

Tensor AttentionData::Sinks() const {
  Tensor tensor(*c_.sinks, {{"Hq", c_.query_heads}});
  Generator random = For("sinks", 0);
  std::vector<double> values(static_cast<size_t>(c_.query_heads));
  for (double& x : values) x = 2.0 * random.Gauss();
  if (regime_ == "disabled_sinks") {
    const double lowest = -FloatTypeOf(tensor.dtype).largest_finite;
    const std::array<double, 3> disabled = {-std::numeric_limits<double>::infinity(), lowest,
                                            std::max(-1e30, lowest)};
    for (size_t h = 0; h < values.size(); ++h) {
      const size_t which = (h + c_.data.seed) % (disabled.size() + 1);
      if (which < disabled.size()) values[h] = disabled[which];
    }
  }
  EncodeFrom(values, tensor.dtype, tensor.bytes.data());
  return tensor;
}

// The slopes of `heads` = 2^m heads: powers of 2^(-8 / heads), which is reached by square roots and
// products alone, so that every machine gets the same bits.
std::vector<double> SlopesOfPowerOfTwo(uint64_t heads) {
  double ratio = 0x1p-8;
  for (uint64_t h = heads; h > 1; h /= 2) ratio = std::sqrt(ratio);
  std::vector<double> slopes;
  double slope = 1;
  for (uint64_t h = 0; h < heads; ++h) slopes.push_back(slope *= ratio);
  return slopes;
}

Tensor AttentionData::Slopes() const {
  Tensor tensor(DType::kFloat32, {{"Hq", c_.query_heads}});
  const uint64_t heads = static_cast<uint64_t>(c_.query_heads);
  const uint64_t power = std::bit_floor(heads);
  std::vector<double> slopes = SlopesOfPowerOfTwo(power);
  const std::vector<double> between = SlopesOfPowerOfTwo(2 * power);
  for (uint64_t h = 0; slopes.size() < heads; h += 2) slopes.push_back(between[h]);
  EncodeFrom(slopes, tensor.dtype, tensor.bytes.data());
  return tensor;
}

}  // namespace

std::span<const std::string_view> AttentionRegimes() { return kRegimes; }

TensorMap GenerateAttention(const AttentionCase& c) {
  if (std::find(kRegimes.begin(), kRegimes.end(), c.data.regime) == kRegimes.end()) {
    ThrowUnknownRegime(c.data.regime, "attention", kRegimes);
  }
  const AttentionData data(c);
  TensorMap tensors;
  tensors["q"] = data.Queries();
  tensors["k_original"] = data.Keys();
  tensors["v_original"] = data.Values();
  tensors["q"].shape = {{"B", c.batch}, {"Hq", c.query_heads}, {"L", c.query_len}, {"Dk", c.k_dim}};
  tensors["k_original"].shape = {
      {"B", c.batch}, {"Hkv", c.kv_heads}, {"T", c.kv_len}, {"Dk", c.k_dim}};
  tensors["v_original"].shape = {
      {"B", c.batch}, {"Hkv", c.kv_heads}, {"T", c.kv_len}, {"Dv", c.v_dim}};
  if (c.mask.array != MaskArrayKind::kNone) tensors["mask"] = data.Mask();
  if (c.sinks) tensors["sinks"] = data.Sinks();
  if (c.alibi) tensors["alibi_slopes"] = data.Slopes();
  return tensors;
}

}  // namespace kvcheck
