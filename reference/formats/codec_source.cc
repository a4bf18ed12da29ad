#include "reference/formats/codec_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "reference/formats/codec.h"
#include "reference/formats/codec_tiles.h"
#include "reference/formats/error_bound.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

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
    // The order of tiles: that of the planes.
    std::vector<std::string> names = PlaneNames(c.format);
    names.emplace_back("y");
    for (const std::string& name : names) {
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
      info.reasons = CodecReasons();
      outputs_.push_back(std::move(info));
    }
    rows_per_tile_ = CodecRowsPerTile(c.head_dim);
  }

  const std::vector<OutputInfo>& Outputs() const override { return outputs_; }
  int64_t TileCount() const override { return (case_.rows + rows_per_tile_ - 1) / rows_per_tile_; }

  std::vector<ExpectedTile> Tiles(int64_t index, const TileRequest& request) const override {
    const int64_t first = index * rows_per_tile_;
    const int64_t count = std::min(rows_per_tile_, case_.rows - first);
    return TilesUnder(profile_, first, count, request);
  }

  std::vector<OtherReading> OtherReadings(int output) const override;

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

  CodecCase case_;
  Profile profile_;
  const TensorMap& inputs_;
  std::vector<OutputInfo> outputs_;
  int64_t rows_per_tile_ = 1;
};

std::vector<ExpectedTile> CodecSource::Encoded(const Profile& profile, int64_t first,
                                               int64_t count) const {
  const Tensor& x = Get(inputs_, "x");
  std::vector<ExpectedTile> tiles =
      EncodedTiles(case_.format, profile, Slice(x, first, count), inputs_, {&x.shape, first});
  for (size_t i = 0; i < tiles.size(); ++i) tiles[i].output = static_cast<int>(i);
  return tiles;
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

std::vector<ExpectedTile> CodecSource::RoundTrip(const Profile& profile, int64_t first,
                                                 int64_t count, const TileRequest& request) const {
  const Tensor& x = Get(inputs_, "x");
  std::vector<double> values(static_cast<size_t>(count * case_.head_dim));
  DecodeTo(x, first * case_.head_dim, values);
  RoundTripClaim claim;
  claim.format = case_.format;
  claim.given = case_.x;
  if (IsPlain(case_.format)) claim.read = case_.x;
  claim.profiles = {profile};
  // A row that is written out is rounded at least once.
  if (profile.decode == DecodeRounding::kExact) {
    claim.profiles.front().decode = DecodeRounding::kOneRounding;
  }
  std::vector<ExpectedTile> tiles;
  tiles.push_back(
      RoundTripTile(claim, std::move(values), case_.head_dim, request.terms, {&x.shape, first}));
  return tiles;
}

std::vector<OtherReading> CodecSource::OtherReadings(int output) const {
  static_cast<void>(output);
  std::vector<OtherReading> readings;
  for (const ProfileChange& change : OtherCodecProfiles(case_.format, profile_)) {
    OtherReading reading;
    reading.name = reading.text = change.text;
    reading.is_declared = true;
    reading.sources.push_back([source = *this, profile = change.profile] {
      auto other = std::make_shared<CodecSource>(source);
      other->profile_ = profile;
      return other;
    });
    readings.push_back(std::move(reading));
  }
  return readings;
}

}  // namespace

std::unique_ptr<ExpectedSource> MakeCodecSource(const CodecCase& c, const Profile& profile,
                                                const TensorMap& inputs) {
  return std::make_unique<CodecSource>(c, profile, inputs);
}

}  // namespace kvcheck
