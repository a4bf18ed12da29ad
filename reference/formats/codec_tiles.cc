#include "reference/formats/codec_tiles.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "reference/formats/codec.h"
#include "reference/formats/error_bound.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

constexpr int64_t kTileElements = int64_t{1} << 16;

std::vector<double> ValuesOf(const Tensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.ElementCount()));
  DecodeTo(tensor, 0, values);
  return values;
}

// Of two bounds the larger, element by element, with its terms.
void TakeLarger(const RowBound& other, RowBound* bound) {
  for (size_t i = 0; i < bound->total.size(); ++i) {
    bound->overflows[i] = bound->overflows[i] || other.overflows[i];
    bound->undefined[i] = bound->undefined[i] || other.undefined[i];
    bound->wrong_code[i] = std::min(bound->wrong_code[i], other.wrong_code[i]);
    if (!(other.total[i] > bound->total[i])) continue;
    bound->total[i] = other.total[i];
    for (size_t term = 0; term < bound->terms.size(); ++term) {
      bound->terms[term][i] = other.terms[term][i];
    }
  }
}

RoundTripQuestion QuestionOf(const RoundTripClaim& claim, const Profile& profile) {
  return {profile, profile.decode, claim.given, claim.read};
}

// format: of the row's head.
RowBound BoundOf(const RoundTripClaim& claim, const KvFormat& format,
                 const FormatArithmetic& arithmetic, std::span<const double> x) {
  RowBound bound = RoundTripBound(format, QuestionOf(claim, claim.profiles.front()), x);
  for (size_t k = 1; k < claim.profiles.size(); ++k) {
    if (arithmetic.SameBound(claim.profiles.front(), claim.profiles[k], x)) continue;
    TakeLarger(RoundTripBound(format, QuestionOf(claim, claim.profiles[k]), x), &bound);
  }
  return bound;
}

}  // namespace

const std::vector<std::string>& CodecReasons() {
  static const std::vector<std::string> reasons = {
      "the word holds the code of a NaN element, which the format does not define; its other codes "
      "are as they must be",
      "the group holds an infinity or only NaN: its scale is NaN and its codes carry no meaning",
      "the GPU encoders do not define a group with NaN or infinity",
      "the stored value is the real number zero, which has no sign",
      "NaN has no sign, and this profile makes a signed number of it",
      "NaN or infinity of the row, which a coded format does not keep, or beside it in its group",
      "the rounded scale, product or sum of the row may overflow the row type",
      "the block holds NaN or infinity, of which each writer makes bytes of its own",
      "the scale of the block is stored as 0, and its codes carry no meaning",
      "the scale of a block of zeros is 0, whose sign each writer sets as it likes",
      "the minimum of the block is 0, whose sign each writer sets as it likes",
      "a sum or difference of the block is beyond f32, and what is made of it is not defined",
      "the scale lies so near the middle of two numbers of f16 that another order of its sums "
      "gives the other",
      "the block holds zeros alone, whose scale each writer sets as it likes",
      "the writer takes approximate reciprocals, which leave this scale or code to the machine",
      "a coordinate within 2^-18 / sqrt(d) of a threshold, of which either code is right",
      "the norm is as near to the middle between two f16 as sums in f32 are exact",
      "the norm is no finite f16: what else is stored of the group has no meaning",
      "a projected coordinate of the residual that is as near to 0 as f32 is exact: either sign is "
      "right",
      "the norm of the residual is as near to the middle between two f16 as f32 is exact",
      "a GPU's reciprocal of the scale is off by one unit in the last place at most, which moves "
      "this code to its "
      "neighbour",
      "the group, which may be the tokens of one channel, holds NaN or infinity, or what is stored "
      "of its range is beyond the row type: it has no meaning"};
  return reasons;
}

std::vector<ProfileChange> OtherCodecProfiles(const KvFormat& format, const Profile& profile) {
  return ArithmeticOf(format)->OtherProfiles(profile);
}

int64_t CodecRowsPerTile(int64_t head_dim) {
  return std::max<int64_t>(1, kTileElements / std::max<int64_t>(1, head_dim));
}

ExpectedTile RoundTripTile(const RoundTripClaim& claim, std::vector<double> x, int64_t head_dim,
                           bool terms, const RowPlace& place) {
  const size_t size = x.size();
  const size_t dim = static_cast<size_t>(head_dim);
  const size_t rows = size / dim;
  ExpectedTile tile;
  tile.value = std::move(x);
  tile.bound.assign(size, 0.0);
  tile.mass.assign(size, 0.0);
  if (claim.names_wrong_codes) tile.least_fault.assign(size, 0.0);
  tile.standing.assign(rows, Standing::kJudged);
  tile.standing_reason.assign(rows, 0);
  if (terms) {
    tile.terms.assign(BoundTerms(claim.format).size(), std::vector<double>(size, 0.0));
  }
  std::vector<KvFormat> formats;
  std::vector<std::unique_ptr<FormatArithmetic>> arithmetics;
  for (int64_t head = 0; head < HeadsOf(claim.format); ++head) {
    formats.push_back(FormatOfHead(claim.format, head));
    arithmetics.push_back(ArithmeticOf(formats.back()));
  }
  const Shape of_rows = {{"", 0}, {"", head_dim}};
  for (size_t row = 0; row < rows; ++row) {
    const size_t at = row * dim;
    const auto head =
        static_cast<size_t>(HeadOfRow(claim.format, place.shape == nullptr ? of_rows : *place.shape,
                                      place.first_row + static_cast<int64_t>(row)));
    const auto& arithmetic = arithmetics[head];
    const std::vector<double> of_row(tile.value.begin() + static_cast<std::ptrdiff_t>(at),
                                     tile.value.begin() + static_cast<std::ptrdiff_t>(at + dim));
    const RowBound bound = BoundOf(claim, formats[head], *arithmetic, of_row);
    for (size_t i = 0; i < dim; ++i) {
      tile.bound[at + i] = bound.total[i];
      tile.mass[at + i] = std::isfinite(of_row[i]) ? std::fabs(of_row[i]) : 0.0;
      if (claim.names_wrong_codes) tile.least_fault[at + i] = bound.wrong_code[i];
      for (size_t term = 0; term < tile.terms.size(); ++term) {
        tile.terms[term][at + i] = bound.terms[term][i];
      }
    }
    arithmetic->SetStanding(QuestionOf(claim, claim.profiles.front()), of_row, bound, row, &tile);
  }
  return tile;
}

WrittenRows WriteAs(const FormatArithmetic& writer, const KvFormat& format, const Profile& profile,
                    const Tensor& x) {
  const int64_t dim = x.shape.RowLength(), count = x.shape.RowCount();
  const Planes planes = PlanesOf(format, dim);
  std::vector<Tensor> stored;
  for (const Plane& plane : planes) {
    stored.emplace_back(plane.dtype, Shape::Unnamed({count, plane.elements}));
  }
  const std::vector<double> values = ValuesOf(x);
  const auto rows = writer.MakeRows(profile, dim);
  std::array<std::byte*, kMaxPlanes> at{};
  for (int64_t row = 0; row < count; ++row) {
    for (size_t i = 0; i < planes.size(); ++i) {
      at[i] = stored[i].bytes.data() + static_cast<size_t>(row) * planes[i].Bytes();
    }
    rows->Encode(
        std::span(values).subspan(static_cast<size_t>(row * dim), static_cast<size_t>(dim)),
        {at.data(), planes.size()});
  }
  WrittenRows written;
  for (size_t i = 0; i < planes.size(); ++i) {
    ExpectedTile& tile = written.tiles.emplace_back();
    tile.value = ValuesOf(stored[i]);
    tile.bound.assign(tile.value.size(), 0.0);
    written.planes.emplace(planes[i].name, std::move(stored[i]));
  }
  writer.AddTileAlternatives(profile, values, dim, &written.tiles);
  return written;
}

ReadRowsAs ReadAs(const FormatArithmetic& writer, const KvFormat& format, const Profile& profile,
                  const TensorMap& planes, int64_t first, int64_t count) {
  const auto dim = static_cast<size_t>(RowDim(format, CodecRows(format, planes)));
  const Planes of_row = PlanesOf(format, static_cast<int64_t>(dim));
  const auto rows = writer.MakeRows(profile, static_cast<int64_t>(dim));
  const bool is_open = writer.LeavesDecodeOpen(profile);
  ReadRowsAs read;
  read.values.resize(static_cast<size_t>(count) * dim);
  read.bound.resize(read.values.size());
  std::array<const std::byte*, kMaxPlanes> at{};
  for (size_t row = 0; row < static_cast<size_t>(count); ++row) {
    for (size_t i = 0; i < of_row.size(); ++i) {
      at[i] = Get(planes, std::string(of_row[i].name)).bytes.data() +
              (static_cast<size_t>(first) + row) * of_row[i].Bytes();
    }
    const RowPlanesView stored(at.data(), of_row.size());
    const std::span<double> values = std::span(read.values).subspan(row * dim, dim);
    rows->DecodeToRowType(stored, values);
    if (is_open) {
      writer.DecodeBound(profile, stored, values, std::span(read.bound).subspan(row * dim, dim));
    }
  }
  return read;
}

bool TellApart(const KvFormat& format, const FormatArithmetic& writer, size_t writers,
               const Profile& profile, int64_t row_count,
               const std::function<Tensor(int64_t first, int64_t count)>& rows) {
  constexpr int64_t kRows = 16;  // at a time
  const double enough = 20 + std::log2(static_cast<double>(writers));
  const std::string plane = PlaneNames(format).front();
  const auto block = static_cast<size_t>(BlockOf(format));
  std::set<std::vector<double>> seen;
  std::set<size_t> channels;  // of a block, that are not 0 in some row: whose signs have a say
  size_t differ = 0;
  for (int64_t first = 0; first < row_count; first += kRows) {
    const Tensor x = rows(first, std::min(kRows, row_count - first));
    const std::vector<double> given = ValuesOf(x);
    const std::vector<double> own = ValuesOf(EncodeRows(format, profile, x).at(plane));
    const std::vector<double> other =
        ValuesOf(WriteAs(writer, format, profile, x).planes.at(plane));
    const auto count = static_cast<size_t>(x.shape.RowCount());
    const size_t dim = given.size() / count, words = own.size() / count;
    for (size_t row = 0; row < count; ++row) {
      const auto at = given.begin() + static_cast<std::ptrdiff_t>(row * dim);
      if (!seen.emplace(at, at + static_cast<std::ptrdiff_t>(dim)).second) continue;
      for (size_t i = 0; i < dim; ++i) {
        if (given[row * dim + i] != 0) channels.insert(i % block);
      }
      for (size_t i = row * words; i < (row + 1) * words; ++i) differ += own[i] != other[i] ? 1 : 0;
    }
    if (static_cast<double>(std::min(differ, channels.size())) >= enough) return true;
  }
  return false;
}

std::vector<OtherReading> WriterReadings(const KvFormat& format, const SourceOfWriter& as) {
  std::vector<OtherReading> readings;
  const std::vector<OtherWriter> writers = ArithmeticOf(format)->OtherWriters();
  for (const OtherWriter& writer : writers) {
    OtherReading reading;
    reading.name = writer.name;
    reading.text = writer.text;
    reading.of_every_row = true;
    reading.sources.push_back([as, writer, count = writers.size()] { return as(writer, count); });
    readings.push_back(std::move(reading));
  }
  return readings;
}

bool Allows(const Alternative& alternative, double expected, double got) {
  if (alternative.any) return true;
  if (alternative.free_bits == 0) return alternative.value == got;
  const uint64_t flipped = static_cast<uint64_t>(expected) ^ static_cast<uint64_t>(got);
  return (flipped & ~alternative.free_bits) == 0;
}

RowRange OrderedRange(const PlaneOrder& order, int64_t first_row, int64_t count, int64_t rows) {
  const int64_t end = (first_row + count + order.rows - 1) / order.rows * order.rows;
  return {first_row / order.rows * order.rows, std::min(rows, end)};
}

void Reorder(const PlaneOrder& order, Tensor* plane) {
  const auto rows = static_cast<size_t>(order.rows);
  const size_t row_bytes =
      plane->bytes.size() / static_cast<size_t>(std::max<int64_t>(1, plane->shape.RowCount()));
  const std::vector<std::byte> linear = plane->bytes;
  const size_t group = rows * row_bytes;
  for (size_t at = 0; group > 0 && at + group <= linear.size(); at += group) {
    order.permute(std::span(linear).subspan(at, group), std::span(plane->bytes).subspan(at, group));
  }
}

std::vector<ExpectedTile> EncodedTiles(const KvFormat& format, const Profile& profile,
                                       const Tensor& x, const TensorMap& parameters,
                                       const RowPlace& place) {
  const TensorMap encoded = EncodeRows(format, profile, x, parameters, place);
  std::vector<ExpectedTile> tiles;
  for (const Plane& plane : PlanesOf(format, x.shape.RowLength())) {
    if (plane.scope != PlaneScope::kRow) continue;
    ExpectedTile tile;
    tile.value = ValuesOf(encoded.at(std::string(plane.name)));
    tile.bound.assign(tile.value.size(), 0.0);
    tiles.push_back(std::move(tile));
  }
  ArithmeticOf(format)->AddTileAlternatives(profile, ValuesOf(x), x.shape.RowLength(), &tiles);
  return tiles;
}

}  // namespace kvcheck
