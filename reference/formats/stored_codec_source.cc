#include "reference/formats/stored_codec_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "reference/formats/codec.h"
#include "reference/formats/codec_tiles.h"
#include "reference/formats/error_bound.h"
#include "reference/numerics/convert.h"
#include "reference/spec/codec_choices.h"
#include "reference/spec/error.h"
#include "reference/spec/tensor.h"
#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

// A tile holds whole rows; nothing that is called a row is longer.
constexpr int64_t kLongestRow = int64_t{1} << 20;

bool IsReal(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kFloat32 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

[[noreturn]] void Illegal(std::string message, const std::string& context) {
  throw Error(ErrorCode::kIllegalCase, std::move(message), context);
}

const OutputInfo& FindOriginal(const ObservedSource& originals, const std::string& name) {
  const OutputInfo* info = originals.Find(name);
  if (info == nullptr) {
    throw Error(ErrorCode::kMissingData, fmt::format("there is no original '{}'; present: {}", name,
                                                     fmt::join(originals.Names(), ", ")));
  }
  return *info;
}

Shape WithLastExtent(Shape shape, const std::string& name, int64_t extent) {
  shape.axes.back() = {name, extent};
  return shape;
}

// Rows [first, first + count) of a stored tensor, read as a tensor (count, last extent).
Tensor ReadRows(const ObservedSource& source, const OutputInfo& info, const std::string& name,
                int64_t first, int64_t count) {
  const int64_t length = info.shape.RowLength();
  Tensor rows(info.dtype, Shape::Unnamed({count, length}));
  source.Read(name, first * length, rows.bytes);
  return rows;
}

DecodeRounding DecodeOr(DecodeRounding not_stated, const CodecRule& rule) {
  return rule.stated.contains(CodecChoice::kDecode) ? rule.profile.decode : not_stated;
}

RoundTripClaim ClaimOf(const CodecRule& rule, const KvFormat& format, DType given, DType read,
                       DecodeRounding decode) {
  RoundTripClaim claim;
  claim.format = format;
  claim.given = given;
  claim.read = read;
  claim.names_wrong_codes = true;
  Profile profile = rule.profile;
  profile.decode = decode;
  claim.profiles = {profile};
  for (const CodecField& field : CodecFields()) {
    if (field.left_out == LeftOut::kAny && IsOpen(rule, field)) {
      claim.profiles = ArithmeticOf(format)->UndeclaredEncoders(profile);
    }
  }
  return claim;
}

// Of the fields that a rule may leave open with every value of theirs expected.
bool SameEncoder(const Profile& a, const Profile& b) {
  return std::all_of(CodecFields().begin(), CodecFields().end(), [&](const CodecField& field) {
    return field.left_out != LeftOut::kAny || field.Same(a, b);
  });
}
void TakeEncoder(const Profile& from, Profile* to) {
  for (const CodecField& field : CodecFields()) {
    if (field.left_out == LeftOut::kAny) field.copy(from, to);
  }
}

// Names of the outputs behind the values, one per plane. Empty when they are not judged.
using EncodedNames = std::vector<std::string>;

class StoredCodecSource : public ExpectedSource {
 public:
  StoredCodecSource(const CodecRule& rule, const RoundTripClaim& claim,
                    const ObservedSource& originals, const OutputInfo& original,
                    const std::string& name, const std::string& values, DType values_dtype,
                    const EncodedNames& encoded)
      : claim_(claim),
        stated_(rule.stated),
        originals_(originals),
        original_(original),
        name_(name) {
    OutputInfo info;
    info.name = values;
    info.dtype = values_dtype;
    info.shape = original.shape;
    info.row_length = RowLength();
    info.claim = Claim::kAccuracy;
    info.rule = Print(rule);
    info.terms = BoundTerms(claim.format);
    info.reasons = CodecReasons();
    outputs_.push_back(std::move(info));
    AddAssumptions(rule, values);
    const Planes planes = PlanesOf(claim.format, original.shape.RowLength());
    for (size_t i = 0; i < encoded.size(); ++i) AddEncoded(planes[i], encoded[i]);
    rows_ = original.shape.ElementCount() / RowLength();
    rows_per_tile_ = CodecRowsPerTile(RowLength());
  }

  const std::vector<OutputInfo>& Outputs() const override { return outputs_; }
  int64_t TileCount() const override { return (rows_ + rows_per_tile_ - 1) / rows_per_tile_; }
  Precision FinestPrecision() const override { return Precision::kDouble; }
  std::vector<std::string> Assumptions() const override { return assumptions_; }

  std::vector<ExpectedTile> Tiles(int64_t index, const TileRequest& request) const override {
    const int64_t first = index * rows_per_tile_;
    return RowTiles(first, std::min(rows_per_tile_, rows_ - first), claim_, request.terms);
  }

  std::vector<OtherReading> OtherReadings(int output) const override;

  // What stands for the values; must outlive this. Without it only profiles are other readings.
  void SetPlanes(const ObservedSource& observed, const TripletNames& names) {
    observed_ = &observed;
    names_ = names;
  }

 private:
  // Elements of a row; of a plain format, whose elements stand alone, 1 where rows are long.
  int64_t RowLength() const {
    const int64_t length = original_.shape.RowLength();
    const bool alone = IsPlain(claim_.format) && length > CodecRowsPerTile(1);
    return alone || length == 0 ? 1 : length;
  }

  void AddAssumptions(const CodecRule& rule, const std::string& name) {
    if (rule.scale_type_of_want) {
      assumptions_.push_back(
          fmt::format("scale type of {}={}", name, ShortName(RowDType(claim_.format))));
    }
    for (const CodecField& field : CodecFields()) {
      if (!IsOpen(rule, field)) continue;
      const Profile& profile = claim_.profiles.front();
      assumptions_.push_back(field.left_out == LeftOut::kAny
                                 ? fmt::format("{}={}", field.key, ExpectedValues(field))
                                 : Print(field, profile));
    }
  }

  // The encoder that the bits are held to.
  std::string EncoderName() const {
    for (const CodecField& field : CodecFields()) {
      if (field.left_out == LeftOut::kAny && Leaves(claim_.format, field.choice)) {
        return Print(field, claim_.profiles.front());
      }
    }
    return Print(claim_.format);
  }

  void AddEncoded(const Plane& plane, const std::string& name) {
    OutputInfo info;
    info.name = name;
    info.dtype = plane.dtype;
    info.shape = WithLastExtent(original_.shape, std::string(plane.axis), plane.elements);
    info.row_length = info.shape.RowLength();
    info.claim = Claim::kConformance;
    info.rule = "bits of " + EncoderName();
    info.reasons = CodecReasons();
    outputs_.push_back(std::move(info));
  }

  std::vector<ExpectedTile> RowTiles(int64_t first, int64_t count, const RoundTripClaim& claim,
                                     bool terms) const {
    const int64_t length = RowLength();
    Tensor x(original_.dtype, Shape::Unnamed({count, length}));
    originals_.Read(name_, first * length, x.bytes);
    std::vector<double> values(static_cast<size_t>(count * length));
    DecodeTo(x, 0, values);
    std::vector<ExpectedTile> tiles;
    if (writer_) {
      tiles = WriterTiles(first, count, x);
    } else {
      tiles.push_back(
          RoundTripTile(claim, std::move(values), length, terms, {&original_.shape, first}));
    }
    if (!writer_ && outputs_.size() > 1) {
      for (ExpectedTile& tile :
           EncodedTiles(claim.format, claim.profiles.front(), x, {}, {&original_.shape, first})) {
        tiles.push_back(std::move(tile));
      }
      // A wrong code fails by its bits, however near its value comes.
      tiles[0].least_fault.assign(tiles[0].value.size(), std::numeric_limits<double>::infinity());
    }
    if (order_) ExpectOrder(first, count, &tiles);
    for (size_t i = 0; i < tiles.size(); ++i) {
      tiles[i].output = static_cast<int>(i);
      tiles[i].first_row = first;
      tiles[i].row_count = count;
      std::sort(tiles[i].alternatives.begin(), tiles[i].alternatives.end(),
                [](const Alternative& a, const Alternative& b) { return a.element < b.element; });
    }
    return tiles;
  }

  // Of what the declared encoder stores, a plane of which is in another order: values as they are
  // then read, exact in f64, and that plane.
  void ExpectOrder(int64_t first, int64_t count, std::vector<ExpectedTile>* tiles) const {
    const int64_t length = RowLength();
    const RowRange range = OrderedRange(*order_, first, count, rows_);
    Tensor x(original_.dtype, Shape::Unnamed({range.end - range.first, length}));
    originals_.Read(name_, range.first * length, x.bytes);
    const Profile& profile = claim_.profiles.front();
    TensorMap stored = EncodeRows(claim_.format, profile, x);
    const std::string plane(PlanesOf(claim_.format, length)[order_->plane].name);
    Reorder(*order_, &stored.at(plane));
    const int64_t skipped = first - range.first;
    ExpectedTile& values = (*tiles)[0];
    values.value =
        DecodeRows(claim_.format, profile, CodecRows(claim_.format, stored), skipped, count).hi;
    std::fill(values.bound.begin(), values.bound.end(), 0.0);
    if (tiles->size() == 1) return;
    ExpectedTile& of_plane = (*tiles)[1 + order_->plane];
    of_plane.alternatives.clear();
    DecodeTo(stored.at(plane), skipped * stored.at(plane).shape.RowLength(), of_plane.value);
  }

  // Of what another writer stores of rows x: values as they are read under the rule, exact in f64,
  // and the planes. What that writer leaves open is taken as it is stored.
  std::vector<ExpectedTile> WriterTiles(int64_t first, int64_t count, const Tensor& x) const {
    const Profile& profile = claim_.profiles.front();
    WrittenRows written = WriteAs(*writer_, claim_.format, profile, x);
    const Planes planes = PlanesOf(claim_.format, RowLength());
    TensorMap admitted = written.planes;
    for (size_t i = 0; i < planes.size(); ++i) {
      const std::string& name = names_.planes[i];
      const Tensor stored = ReadRows(*observed_, *observed_->Find(name), name, first, count);
      std::vector<double> got(static_cast<size_t>(stored.ElementCount()));
      DecodeTo(stored, 0, got);
      ExpectedTile tile = written.tiles[i];
      if (tile.given) tile.given(got, &tile);
      std::vector<double> values = tile.value;
      for (const Alternative& alternative : tile.alternatives) {
        const auto element = static_cast<size_t>(alternative.element);
        if (Allows(alternative, tile.value[element], got[element])) values[element] = got[element];
      }
      EncodeFrom(values, stored.dtype, admitted.at(std::string(planes[i].name)).bytes.data());
    }
    std::vector<ExpectedTile> tiles(1);
    tiles[0].value =
        DecodeRows(claim_.format, profile, CodecRows(claim_.format, admitted), 0, count).hi;
    tiles[0].bound.assign(tiles[0].value.size(), 0.0);
    if (outputs_.size() == 1) return tiles;
    for (ExpectedTile& tile : written.tiles) tiles.push_back(std::move(tile));
    return tiles;
  }

  std::vector<OtherReading> OtherWriterReadings() const;

  RoundTripClaim claim_;
  CodecChoiceSet stated_;
  const ObservedSource* observed_ = nullptr;
  TripletNames names_;
  std::shared_ptr<const FormatArithmetic> writer_;  // whose rows are expected; null: the format's
  const ObservedSource& originals_;
  OutputInfo original_;
  std::string name_;
  std::optional<PlaneOrder> order_;  // in which a plane is expected
  std::vector<OutputInfo> outputs_;
  std::vector<std::string> assumptions_;
  int64_t rows_ = 0;
  int64_t rows_per_tile_ = 1;
};

std::vector<OtherReading> StoredCodecSource::OtherWriterReadings() const {
  if (observed_ == nullptr) return {};
  const auto as = [source = *this](const OtherWriter& writer,
                                   size_t writers) -> std::shared_ptr<const ExpectedSource> {
    const auto rows = [&](int64_t first, int64_t count) {
      return ReadRows(source.originals_, source.original_, source.name_, first, count);
    };
    if (!TellApart(source.claim_.format, *writer.arithmetic, writers,
                   source.claim_.profiles.front(), source.rows_, rows)) {
      return nullptr;
    }
    auto other = std::make_shared<StoredCodecSource>(source);
    other->writer_ = writer.arithmetic;
    return other;
  };
  return WriterReadings(claim_.format, as);
}

std::vector<OtherReading> StoredCodecSource::OtherReadings(int output) const {
  std::vector<OtherReading> readings;
  for (const PlaneOrder& order : ArithmeticOf(claim_.format)->OtherOrders(RowLength(), rows_)) {
    // Values in f64 are those of planes, not what somebody has rounded.
    const bool concerns = output == 0 ? outputs_[0].dtype == DType::kFloat64
                                      : static_cast<size_t>(output) == 1 + order.plane;
    if (!concerns) continue;
    OtherReading reading;
    reading.name = order.name;
    reading.text = order.text;
    // Under each encoder that may have stored them.
    for (const Profile& profile : claim_.profiles) {
      reading.sources.push_back([source = *this, order, profile] {
        auto other = std::make_shared<StoredCodecSource>(source);
        other->order_ = order;
        other->claim_.profiles = {profile};
        return other;
      });
    }
    readings.push_back(std::move(reading));
  }
  for (OtherReading& reading : OtherWriterReadings()) readings.push_back(std::move(reading));
  const Profile declared = claim_.profiles.front();
  for (const ProfileChange& change : OtherCodecProfiles(claim_.format, declared)) {
    RoundTripClaim claim = claim_;
    const bool any_encoder = claim.profiles.size() > 1;
    const auto same =
        std::find_if(claim.profiles.begin(), claim.profiles.end(),
                     [&](const Profile& profile) { return SameEncoder(change.profile, profile); });
    // Of encoders that nobody named these are expected already.
    if (any_encoder && same != claim.profiles.begin() && same != claim.profiles.end()) continue;
    if (same == claim.profiles.end()) claim.profiles.resize(1);
    for (Profile& profile : claim.profiles) {
      const Profile of_encoder = profile;
      profile = change.profile;
      if (claim.profiles.size() > 1) TakeEncoder(of_encoder, &profile);
    }
    OtherReading reading;
    reading.declared = ChangeOf(declared, change.profile, stated_);
    reading.sources.push_back([source = *this, claim = std::move(claim)] {
      auto other = std::make_shared<StoredCodecSource>(source);
      other->claim_ = claim;
      return other;
    });
    readings.push_back(std::move(reading));
  }
  return readings;
}

// The values of a triplet, in f64, beside its tensors as they are.
class TripletObserved : public ObservedSource {
 public:
  TripletObserved(const KvFormat& format, const Profile& profile, const Shape& shape,
                  const ObservedSource& observed, const TripletNames& names, bool with_tensors)
      : format_(format),
        profile_(profile),
        observed_(observed),
        names_(names),
        with_tensors_(with_tensors) {
    values_.name = names.values;
    values_.dtype = DType::kFloat64;
    values_.shape = shape;
    values_.row_length = shape.RowLength();
  }

  const OutputInfo* Find(const std::string& name) const override {
    if (name == names_.values) return &values_;
    return with_tensors_ ? observed_.Find(name) : nullptr;
  }

  std::vector<std::string> Names() const override {
    if (!with_tensors_) return {names_.values};
    std::vector<std::string> names = {names_.values};
    names.insert(names.end(), names_.planes.begin(), names_.planes.end());
    return names;
  }

  void Read(const std::string& name, int64_t first_element,
            std::span<std::byte> out) const override {
    if (name != names_.values) return observed_.Read(name, first_element, out);
    const int64_t length = values_.row_length;
    const int64_t count = static_cast<int64_t>(out.size() / sizeof(double)) / length;
    const int64_t first = first_element / length;
    const auto rows = [&](const std::string& tensor) {
      return ReadRows(observed_, *observed_.Find(tensor), tensor, first, count);
    };
    std::array<Tensor, kMaxPlanes> planes;
    EncodedRows stored;
    for (size_t i = 0; i < names_.planes.size(); ++i) {
      planes[i] = rows(names_.planes[i]);
      stored.planes[i] = &planes[i];
    }
    // What the nearest double leaves out of a stored value is in the bound.
    const DecodedRows decoded = DecodeRows(format_, profile_, stored, 0, count);
    std::memcpy(out.data(), decoded.hi.data(), out.size());
  }

 private:
  const KvFormat format_;
  const Profile profile_;
  const ObservedSource& observed_;
  const TripletNames names_;
  const bool with_tensors_;
  OutputInfo values_;
};

}  // namespace

KvFormat FormatOf(const CodecRule& rule, const OutputInfo& original, const std::string& context) {
  if (!IsReal(original.dtype)) {
    Illegal(fmt::format("a codec rule judges what is stored of f64, f32, f16 or bf16 rows; the "
                        "original is {}",
                        Name(original.dtype)),
            context);
  }
  KvFormat format = rule.format;
  if (rule.scale_type_of_want) {
    if (original.dtype == DType::kFloat64) {
      Illegal(fmt::format("the scales of '{}' would take the original's type, which is float64; "
                          "name it, as {}:f32",
                          Print(ToleranceRule(rule)), Print(ToleranceRule(rule))),
              context);
    }
    format = WithRowType(format, original.dtype);
  }
  const int64_t length = original.shape.RowLength();
  CheckHeadDim(format, length, context);
  if (!IsPlain(format) && original.shape.axes.back().is_slice) {
    Illegal(
        "a slice of the last axis cuts the groups that were quantised together; slice other axes",
        context);
  }
  if (GroupsTokens(format) && original.shape.axes.size() > 2) {
    Illegal(
        fmt::format("a row of {} is a group of {} tokens, and of {} axes nobody can tell whether "
                    "the last one is that: give rows as (groups, {} x channels)",
                    Print(format), TokenGroupOf(format), original.shape.axes.size(),
                    TokenGroupOf(format)),
        context);
  }
  if (!IsPlain(format) && length > kLongestRow) {
    Illegal(fmt::format("a row of {} elements is no head vector: the last axis of the original has "
                        "to be the one that was quantised",
                        length),
            context);
  }
  return format;
}

std::unique_ptr<ExpectedSource> MakeDequantisedSource(const CodecRule& rule,
                                                      const ObservedSource& originals,
                                                      const std::string& original,
                                                      const std::string& result,
                                                      DType result_dtype) {
  const OutputInfo& info = FindOriginal(originals, original);
  const KvFormat format = FormatOf(rule, info, result);
  if (!IsReal(result_dtype)) {
    Illegal(fmt::format("a dequantised tensor is f64, f32, f16 or bf16, this one is {}",
                        Name(result_dtype)),
            result);
  }
  if (rule.codes_exact) {
    Illegal(
        "codes=exact needs what is stored (codes, scales and biases), and here is what that was "
        "dequantised to",
        result);
  }
  // Somebody has written the rows out: rounded at least once.
  const DecodeRounding declared = DecodeOr(DecodeRounding::kTwoRoundings, rule);
  const DecodeRounding decode =
      declared == DecodeRounding::kExact ? DecodeRounding::kOneRounding : declared;
  return std::make_unique<StoredCodecSource>(
      rule, ClaimOf(rule, format, info.dtype, result_dtype, decode), originals, info, original,
      result, result_dtype, EncodedNames());
}

std::optional<std::string> TripletMismatch(const KvFormat& format, const Shape& original,
                                           const ObservedSource& observed,
                                           const TripletNames& names) {
  const auto mismatch = [&](const std::string& name, DType dtype,
                            const Shape& shape) -> std::optional<std::string> {
    const OutputInfo* got = observed.Find(name);
    if (got == nullptr) return fmt::format("{}: missing", name);
    if (got->dtype == DType::kUInt32 && dtype == DType::kUInt8 &&
        got->shape.ElementCount() * 4 == shape.ElementCount()) {
      return fmt::format(
          "{}: codes of {} are bytes; these are MLX's words of four bytes: read them "
          "so with --cast u8, or store words.view(mx.uint8)",
          name, Print(format));
    }
    if (got->dtype != dtype) {
      return fmt::format("{}: has type {}, {} stores {}", name, Name(got->dtype), Print(format),
                         Name(dtype));
    }
    if (!got->shape.SameExtents(shape)) {
      return fmt::format("{}: has shape {}, {} stores rows {} as {}", name, ToString(got->shape),
                         Print(format), ToString(original), ToString(shape));
    }
    return std::nullopt;
  };
  const Planes planes = PlanesOf(format, original.RowLength());
  for (size_t i = 0; i < planes.size(); ++i) {
    const Shape shape = WithLastExtent(original, "", planes[i].elements);
    if (auto reason = mismatch(names.planes[i], planes[i].dtype, shape)) return reason;
  }
  return std::nullopt;
}

TripletComparison MakeTripletComparison(const CodecRule& rule, const ObservedSource& originals,
                                        const std::string& original, const ObservedSource& observed,
                                        const TripletNames& names) {
  const OutputInfo& info = FindOriginal(originals, original);
  const KvFormat format = FormatOf(rule, info, names.values);
  if (IsPlain(format)) {
    Illegal(fmt::format("{} stores no codes, scales and biases; compare its tensor itself",
                        Print(format)),
            names.values);
  }
  const RoundTripClaim claim =
      ClaimOf(rule, format, info.dtype, DType::kFloat64, DecodeOr(DecodeRounding::kExact, rule));
  EncodedNames encoded;
  if (rule.codes_exact) encoded = names.planes;
  TripletComparison comparison;
  auto expected = std::make_unique<StoredCodecSource>(rule, claim, originals, info, original,
                                                      names.values, DType::kFloat64, encoded);
  expected->SetPlanes(observed, names);
  comparison.expected = std::move(expected);
  comparison.observed = std::make_unique<TripletObserved>(
      format, claim.profiles.front(), info.shape, observed, names, rule.codes_exact);
  return comparison;
}

}  // namespace kvcheck
