#include "reference/formats/codec_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "reference/formats/affine.h"
#include "reference/formats/codec.h"
#include "reference/formats/error_bound.h"
#include "reference/formats/plain.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr int64_t kTileElements = int64_t{1} << 16;

// Indices into OutputInfo::reasons.
enum Reason {
  kNanCode,
  kInfiniteGroup,
  kGpuNotFinite,
  kUnsignedZero,
  kNanSign,
  kNotFinite,
  kOverflow
};

const std::vector<std::string>& Reasons() {
  static const std::vector<std::string> reasons = {
      "the word holds the code of a NaN element, which the format does not define",
      "the group holds an infinity or only NaN: its scale is NaN and its codes carry no meaning",
      "the GPU encoders do not define a group with NaN or infinity",
      "the stored value is the real number zero, which has no sign",
      "NaN has no sign, and this profile makes a signed number of it",
      "the row holds NaN or infinity, which the affine format does not keep",
      "the rounded scale, product or sum of the row may overflow the row type"};
  return reasons;
}

std::vector<double> ReadRows(const Tensor& tensor, int64_t first_row, int64_t row_count) {
  const int64_t length = tensor.shape.RowLength();
  std::vector<double> values(static_cast<size_t>(row_count * length));
  DecodeTo(tensor, first_row * length, values);
  return values;
}

// Rows of a tensor as a tensor.
Tensor Slice(const Tensor& tensor, int64_t first_row, int64_t row_count) {
  const int64_t length = tensor.shape.RowLength();
  Tensor slice(tensor.dtype, {{"", row_count}, tensor.shape.axes.back()});
  const size_t row_bytes = static_cast<size_t>(length) * SizeInBytes(tensor.dtype);
  std::memcpy(slice.bytes.data(), tensor.bytes.data() + static_cast<size_t>(first_row) * row_bytes,
              slice.bytes.size());
  return slice;
}

class CodecSource : public ExpectedSource {
 public:
  CodecSource(const CodecCase& c, const Profile& profile, const TensorMap& inputs)
      : case_(c), profile_(profile), inputs_(inputs) {
    CheckInputs(Case(c), inputs);
    const auto specs = OutputSpecs(Case(c));
    // The order of tiles: codes first.
    for (const char* name : {"codes", "scales", "biases", "y"}) {
      const auto spec = specs.find(name);
      if (spec == specs.end()) continue;
      OutputInfo info;
      info.name = name;
      info.dtype = spec->second.dtype;
      info.shape = spec->second.shape;
      info.row_length = info.shape.RowLength();
      info.claim =
          c.direction == CodecDirection::kRoundTrip ? Claim::kAccuracy : Claim::kConformance;
      if (info.claim == Claim::kAccuracy) info.terms = BoundTerms(c.format);
      info.reasons = Reasons();
      outputs_.push_back(std::move(info));
    }
    rows_per_tile_ = std::max<int64_t>(1, kTileElements / c.head_dim);
  }

  const std::vector<OutputInfo>& Outputs() const override { return outputs_; }
  int64_t TileCount() const override { return (case_.rows + rows_per_tile_ - 1) / rows_per_tile_; }

  std::vector<ExpectedTile> Tiles(int64_t index, const TileRequest& request) const override {
    const int64_t first = index * rows_per_tile_;
    const int64_t count = std::min(rows_per_tile_, case_.rows - first);
    return TilesUnder(profile_, first, count, request);
  }

  std::vector<std::string> ExplainExcess(int output, int64_t element, double got) const override;

 private:
  std::vector<ExpectedTile> TilesUnder(const Profile& profile, int64_t first, int64_t count,
                                       const TileRequest& request) const {
    std::vector<ExpectedTile> tiles;
    switch (case_.direction) {
      case CodecDirection::kEncode:
        tiles = Encoded(profile, first, count);
        break;
      case CodecDirection::kDecode:
        tiles = Decoded(profile, first, count);
        break;
      case CodecDirection::kRoundTrip:
        tiles = RoundTrip(profile, first, count, request);
        break;
    }
    for (ExpectedTile& tile : tiles) {
      tile.first_row = first;
      tile.row_count = count;
      tile.precision = request.precision;  // exact at every step of the ladder
      std::sort(tile.alternatives.begin(), tile.alternatives.end(),
                [](const Alternative& a, const Alternative& b) { return a.element < b.element; });
    }
    return tiles;
  }

  std::vector<ExpectedTile> Encoded(const Profile& profile, int64_t first, int64_t count) const;
  std::vector<ExpectedTile> Decoded(const Profile& profile, int64_t first, int64_t count) const;
  std::vector<ExpectedTile> RoundTrip(const Profile& profile, int64_t first, int64_t count,
                                      const TileRequest& request) const;
  void AddEncodeAlternatives(const Profile& profile, const std::vector<double>& x,
                             std::vector<ExpectedTile>* tiles) const;
  void SetAffineStanding(std::span<const double> x, int64_t row, const RowBound& bound,
                         ExpectedTile* tile) const;
  void FillPlainOverflow(const Profile& profile, std::span<const double> x, int64_t row,
                         const RowBound& bound, ExpectedTile* tile) const;

  CodecCase case_;
  Profile profile_;
  const TensorMap& inputs_;
  std::vector<OutputInfo> outputs_;
  int64_t rows_per_tile_ = 1;
};

std::vector<ExpectedTile> CodecSource::Encoded(const Profile& profile, int64_t first,
                                               int64_t count) const {
  const Tensor x = Slice(Get(inputs_, "x"), first, count);
  const TensorMap encoded = EncodeRows(case_.format, profile, x);
  std::vector<ExpectedTile> tiles;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    ExpectedTile tile;
    tile.output = static_cast<int>(i);
    tile.value = ReadRows(encoded.at(outputs_[i].name), 0, count);
    tile.bound.assign(tile.value.size(), 0.0);
    tiles.push_back(std::move(tile));
  }
  if (!IsPlain(case_.format)) AddEncodeAlternatives(profile, ReadRows(x, 0, count), &tiles);
  return tiles;
}

void CodecSource::AddEncodeAlternatives(const Profile& profile, const std::vector<double>& x,
                                        std::vector<ExpectedTile>* tiles) const {
  const auto& affine = std::get<AffineFormat>(case_.format);
  const size_t group = static_cast<size_t>(affine.group_size);
  const size_t bits = static_cast<size_t>(affine.bits);
  const size_t group_words = group * bits / 32;
  const auto any = [&](size_t output, size_t element, Reason reason) {
    (*tiles)[output].alternatives.push_back(
        {.element = static_cast<int64_t>(element), .value = 0, .any = true, .reason = reason});
  };
  for (size_t first = 0; first < x.size(); first += group) {
    std::vector<double> values(x.begin() + static_cast<std::ptrdiff_t>(first),
                               x.begin() + static_cast<std::ptrdiff_t>(first + group));
    RoundAll(values, affine.scale_dtype);
    size_t nan_count = 0;
    bool infinite = false;
    for (const double value : values) {
      nan_count += std::isnan(value) ? 1 : 0;
      infinite = infinite || std::isinf(value);
    }
    if (nan_count == 0 && !infinite) continue;
    const size_t first_word = first / group * group_words;
    const bool gpu = profile.encode == AffineEncoder::kMlxGpu;
    const bool whole = gpu || infinite || nan_count == group;
    if (gpu) {
      any(1, first / group, kGpuNotFinite);
      any(2, first / group, kGpuNotFinite);
    }
    for (size_t word = 0; word < group_words; ++word) {
      const size_t first_code = word * 32 / bits;
      const size_t last_code = (word * 32 + 31) / bits;
      bool holds_nan = false;
      for (size_t k = first_code; k <= last_code; ++k) {
        holds_nan = holds_nan || std::isnan(values[k]);
      }
      if (whole || holds_nan) {
        any(0, first_word + word, gpu ? kGpuNotFinite : whole ? kInfiniteGroup : kNanCode);
      }
    }
  }
}

std::vector<ExpectedTile> CodecSource::Decoded(const Profile& profile, int64_t first,
                                               int64_t count) const {
  const EncodedRows rows = CodecRows(case_.format, inputs_);
  ExpectedTile tile;
  tile.value = DecodeToRowType(case_.format, profile, rows, first, count);
  if (IsPlain(case_.format)) RoundAll(tile.value, case_.x);
  tile.bound.assign(tile.value.size(), 0.0);
  if (!IsPlain(case_.format) && profile.decode == DecodeRounding::kExact) {
    for (size_t i = 0; i < tile.value.size(); ++i) {
      if (tile.value[i] != 0) continue;
      tile.alternatives.push_back({.element = static_cast<int64_t>(i),
                                   .value = -tile.value[i],
                                   .any = false,
                                   .reason = kUnsignedZero});
    }
  }
  return {std::move(tile)};
}

void CodecSource::SetAffineStanding(std::span<const double> x, int64_t row, const RowBound& bound,
                                    ExpectedTile* tile) const {
  const bool finite =
      std::all_of(x.begin(), x.end(), [](double value) { return std::isfinite(value); });
  const bool overflows =
      std::any_of(bound.overflows.begin(), bound.overflows.end(), [](bool b) { return b; });
  const size_t at = static_cast<size_t>(row);
  if (!finite) {
    tile->standing[at] = Standing::kUndefined;
    tile->standing_reason[at] = kNotFinite;
  } else if (overflows) {
    tile->standing[at] = Standing::kUnbounded;
    tile->standing_reason[at] = kOverflow;
  }
}

void CodecSource::FillPlainOverflow(const Profile& profile, std::span<const double> x, int64_t row,
                                    const RowBound& bound, ExpectedTile* tile) const {
  const DType stored = std::get<PlainFormat>(case_.format).dtype;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!bound.overflows[i]) continue;
    // Not a distance but a rule: NaN, infinity or the largest finite value, exactly.
    const size_t at = static_cast<size_t>(row) * x.size() + i;
    tile->value[at] = PlainRoundTrip(stored, case_.x, profile, x[i]);
    tile->bound[at] = 0;
    if (std::isnan(x[i]) && std::isfinite(tile->value[at])) {
      tile->alternatives.push_back({.element = static_cast<int64_t>(at),
                                    .value = -tile->value[at],
                                    .any = false,
                                    .reason = kNanSign});
    }
  }
}

std::vector<ExpectedTile> CodecSource::RoundTrip(const Profile& profile, int64_t first,
                                                 int64_t count, const TileRequest& request) const {
  ExpectedTile tile;
  tile.value = ReadRows(Get(inputs_, "x"), first, count);
  const size_t size = tile.value.size();
  const size_t dim = static_cast<size_t>(case_.head_dim);
  tile.bound.assign(size, 0.0);
  tile.mass.assign(size, 0.0);
  tile.standing.assign(static_cast<size_t>(count), Standing::kJudged);
  tile.standing_reason.assign(static_cast<size_t>(count), 0);
  if (request.terms) {
    tile.terms.assign(outputs_[0].terms.size(), std::vector<double>(size, 0.0));
  }
  // A row that is written out is rounded at least once.
  const DecodeRounding decode =
      profile.decode == DecodeRounding::kExact ? DecodeRounding::kOneRounding : profile.decode;
  for (int64_t row = 0; row < count; ++row) {
    const size_t at = static_cast<size_t>(row) * dim;
    const std::vector<double> x(tile.value.begin() + static_cast<std::ptrdiff_t>(at),
                                tile.value.begin() + static_cast<std::ptrdiff_t>(at + dim));
    const RowBound bound = RoundTripBound(case_.format, profile, decode, case_.x, x);
    for (size_t i = 0; i < dim; ++i) {
      tile.bound[at + i] = bound.total[i];
      tile.mass[at + i] = std::isfinite(x[i]) ? std::fabs(x[i]) : 0.0;
      for (size_t term = 0; term < tile.terms.size(); ++term) {
        tile.terms[term][at + i] = bound.terms[term][i];
      }
    }
    if (IsPlain(case_.format)) {
      FillPlainOverflow(profile, x, row, bound, &tile);
    } else {
      SetAffineStanding(x, row, bound, &tile);
    }
  }
  return {std::move(tile)};
}

std::vector<std::string> CodecSource::ExplainExcess(int output, int64_t element, double got) const {
  const OutputInfo& info = outputs_[static_cast<size_t>(output)];
  const int64_t row = element / info.row_length;
  const size_t at = static_cast<size_t>(element % info.row_length);
  std::vector<Profile> others;
  const auto add = [&](auto Profile::* field, auto value) {
    Profile other = profile_;
    other.*field = value;
    if (other != profile_) others.push_back(other);
  };
  add(&Profile::encode, AffineEncoder::kMlxCpu);
  add(&Profile::encode, AffineEncoder::kMlxGpu);
  add(&Profile::decode, DecodeRounding::kTwoRoundings);
  add(&Profile::decode, DecodeRounding::kOneRounding);
  add(&Profile::fp8_overflow, Fp8Overflow::kNan);
  add(&Profile::fp8_overflow, Fp8Overflow::kSaturate);
  add(&Profile::fp8_overflow, Fp8Overflow::kSaturateAll);
  std::vector<std::string> explanations;
  for (const Profile& other : others) {
    const ExpectedTile tile = std::move(TilesUnder(other, row, 1, {})[static_cast<size_t>(output)]);
    const double value = tile.value[at];
    const bool same = std::isnan(value) ? std::isnan(got) : value == got;
    if (same || std::fabs(got - value) <= tile.bound[at]) {
      explanations.push_back(fmt::format("profile '{}' explains this value", Print(other)));
    }
  }
  return explanations;
}

}  // namespace

std::unique_ptr<ExpectedSource> MakeCodecSource(const CodecCase& c, const Profile& profile,
                                                const TensorMap& inputs) {
  return std::make_unique<CodecSource>(c, profile, inputs);
}

}  // namespace kvcheck
