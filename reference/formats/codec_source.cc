#include "reference/formats/codec_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "reference/formats/codec.h"
#include "reference/formats/codec_tiles.h"
#include "reference/formats/error_bound.h"
#include "reference/formats/format_arithmetic.h"
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
      const bool round_trip = c.direction == CodecDirection::kRoundTrip;
      const bool open = c.direction == CodecDirection::kDecode &&
                        ArithmeticOf(c.format)->LeavesDecodeOpen(profile);
      info.claim = round_trip || open ? Claim::kAccuracy : Claim::kConformance;
      if (round_trip) info.terms = BoundTerms(c.format);
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

  std::vector<OtherReading> OtherWriterReadings() const;

  // The plane of `order_`, of rows [first, first + count), in that order.
  Tensor Ordered(const Profile& profile, int64_t first, int64_t count) const;

  CodecCase case_;
  Profile profile_;
  std::optional<PlaneOrder> order_;                 // in which a plane is expected
  std::shared_ptr<const FormatArithmetic> writer_;  // whose rows are expected; null: the format's
  const TensorMap& inputs_;
  std::vector<OutputInfo> outputs_;
  int64_t rows_per_tile_ = 1;
};

std::vector<ExpectedTile> CodecSource::Encoded(const Profile& profile, int64_t first,
                                               int64_t count) const {
  const Tensor& x = Get(inputs_, "x");
  std::vector<ExpectedTile> tiles =
      writer_
          ? WriteAs(*writer_, case_.format, profile, Slice(x, first, count)).tiles
          : EncodedTiles(case_.format, profile, Slice(x, first, count), inputs_, {&x.shape, first});
  for (size_t i = 0; i < tiles.size(); ++i) tiles[i].output = static_cast<int>(i);
  if (order_) {
    ExpectedTile& tile = tiles[order_->plane];
    tile.alternatives.clear();
    DecodeTo(Ordered(profile, first, count), 0, tile.value);
  }
  return tiles;
}

Tensor CodecSource::Ordered(const Profile& profile, int64_t first, int64_t count) const {
  const RowRange range = OrderedRange(*order_, first, count, case_.rows);
  const std::string name(PlanesOf(case_.format, case_.head_dim)[order_->plane].name);
  Tensor plane;
  if (case_.direction == CodecDirection::kDecode) {
    plane = Slice(Get(inputs_, name), range.first, range.end - range.first);
  } else {
    const Tensor x = Slice(Get(inputs_, "x"), range.first, range.end - range.first);
    plane = EncodeRows(case_.format, profile, x, inputs_).at(name);
  }
  Reorder(*order_, &plane);
  return Slice(plane, first - range.first, count);
}

std::vector<ExpectedTile> CodecSource::Decoded(const Profile& profile, int64_t first,
                                               int64_t count) const {
  ExpectedTile tile;
  TensorMap stored;
  EncodedRows rows;
  int64_t row = 0;
  if (order_) {
    for (const std::string& name : PlaneNames(case_.format)) {
      stored[name] = Slice(Get(inputs_, name), first, count);
    }
    const std::string name(PlanesOf(case_.format, case_.head_dim)[order_->plane].name);
    stored[name] = Ordered(profile, first, count);
    rows = CodecRows(case_.format, stored);
  } else {
    rows = CodecRows(case_.format, inputs_);
    row = first;
  }
  if (writer_) {
    ReadRowsAs read = ReadAs(*writer_, case_.format, profile, inputs_, first, count);
    tile.value = std::move(read.values);
    tile.bound = std::move(read.bound);
  } else {
    tile.value = DecodeToRowType(case_.format, profile, rows, row, count);
    if (IsPlain(case_.format)) RoundAll(tile.value, case_.x);
    tile.bound = DecodeFreedom(case_.format, profile, rows, row, tile.value);
  }
  if (!tile.bound.empty()) {
    tile.standing.assign(static_cast<size_t>(count), Standing::kJudged);
    tile.standing_reason.assign(static_cast<size_t>(count), kNotFinite);
    for (size_t i = 0; i < tile.bound.size(); ++i) {
      if (std::isfinite(tile.bound[i])) continue;
      tile.standing[i / static_cast<size_t>(case_.head_dim)] = Standing::kUndefined;
    }
    return {std::move(tile)};
  }
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

// A value that is read may differ in every channel, one that is stored in few.
std::vector<OtherReading> CodecSource::OtherWriterReadings() const {
  if (case_.direction == CodecDirection::kRoundTrip) return {};
  const auto as = [source = *this](const OtherWriter& writer,
                                   size_t writers) -> std::shared_ptr<const ExpectedSource> {
    const auto rows = [&](int64_t first, int64_t count) {
      return Slice(Get(source.inputs_, "x"), first, count);
    };
    if (source.case_.direction == CodecDirection::kEncode &&
        !TellApart(source.case_.format, *writer.arithmetic, writers, source.profile_,
                   source.case_.rows, rows)) {
      return nullptr;
    }
    auto other = std::make_shared<CodecSource>(source);
    other->writer_ = writer.arithmetic;
    return other;
  };
  return WriterReadings(case_.format, as);
}

std::vector<OtherReading> CodecSource::OtherReadings(int output) const {
  std::vector<OtherReading> readings;
  for (const PlaneOrder& order :
       ArithmeticOf(case_.format)->OtherOrders(case_.head_dim, case_.rows)) {
    const bool is_plane =
        case_.direction == CodecDirection::kEncode && static_cast<size_t>(output) == order.plane;
    if (!is_plane && case_.direction != CodecDirection::kDecode) continue;
    OtherReading reading;
    reading.name = order.name;
    reading.text = order.text;
    reading.sources.push_back([source = *this, order] {
      auto other = std::make_shared<CodecSource>(source);
      other->order_ = order;
      return other;
    });
    readings.push_back(std::move(reading));
  }
  for (OtherReading& reading : OtherWriterReadings()) readings.push_back(std::move(reading));
  for (const ProfileChange& change : OtherCodecProfiles(case_.format, profile_)) {
    OtherReading reading;
    reading.declared = ChangeOf(profile_, change.profile);
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
