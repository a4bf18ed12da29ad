#include "reference/formats/format_arithmetic.h"

#include <algorithm>

#include "reference/spec/codec_choices.h"
#include "reference/spec/error.h"

namespace kvcheck {

void RowArithmetic::ReadCodes(RowPlanesView, std::span<double>, std::span<double>,
                              std::span<double>) {
  KVCHECK_CHECK(false, "the format has no codes");
}

void RowArithmetic::DecodeInBasis(RowPlanesView, std::span<double>) {
  KVCHECK_CHECK(false, "the format does not rotate rows");
}

StoredBasis FormatArithmetic::Basis(int64_t) const { return {}; }

// NOLINTBEGIN(performance-unnecessary-value-param): families return it
std::vector<double> FormatArithmetic::Parts(const Profile&, std::span<const double>,
                                            std::vector<double>) const {
  KVCHECK_CHECK(false, "the format has no codes");
  return {};
}
// NOLINTEND(performance-unnecessary-value-param)

bool FormatArithmetic::SameBound(const Profile& a, const Profile& b,
                                 std::span<const double>) const {
  return a == b;
}

std::vector<Profile> FormatArithmetic::UndeclaredEncoders(const Profile& profile) const {
  return {profile};
}

std::vector<PlaneOrder> FormatArithmetic::OtherOrders(int64_t, int64_t) const { return {}; }

std::vector<OtherWriter> FormatArithmetic::OtherWriters() const { return {}; }

void FormatArithmetic::AddTileAlternatives(const Profile& profile, std::span<const double> x,
                                           int64_t, std::vector<ExpectedTile>* tiles) const {
  AddAlternatives(profile, x, tiles);
}

bool FormatArithmetic::LeavesDecodeOpen(const Profile&) const { return false; }

void FormatArithmetic::DecodeBound(const Profile&, RowPlanesView, std::span<const double>,
                                   std::span<double> bound) const {
  std::fill(bound.begin(), bound.end(), 0.0);
}

void FormatArithmetic::SetStanding(const RoundTripQuestion&, std::span<const double>,
                                   const RowBound& bound, size_t row, ExpectedTile* tile) const {
  const size_t dim = bound.total.size();
  const auto undefined =
      static_cast<size_t>(std::count(bound.undefined.begin(), bound.undefined.end(), true));
  const auto overflows =
      static_cast<size_t>(std::count(bound.overflows.begin(), bound.overflows.end(), true));
  if (undefined == dim) {
    tile->standing[row] = Standing::kUndefined;
    tile->standing_reason[row] = kNotFinite;
    return;
  }
  if (overflows > undefined) {
    tile->standing[row] = Standing::kUnbounded;
    tile->standing_reason[row] = kCodecOverflow;
    return;
  }
  if (undefined == 0) return;
  tile->undefined.resize(tile->value.size());
  tile->undefined_reason = kNotFinite;
  for (size_t i = 0; i < dim; ++i) tile->undefined[row * dim + i] = bound.undefined[i] ? 1 : 0;
}

std::unique_ptr<FormatArithmetic> ArithmeticOf(const KvFormat& format) {
  return std::visit([](const auto& family) { return MakeArithmetic(family); }, format);
}

void AddChanges(const Profile& profile, CodecChoice choice, std::vector<ProfileChange>* changes,
                std::initializer_list<std::string_view> without) {
  const CodecField& field = FieldOf(choice);
  for (const Profile& other : field.variants(profile)) {
    const std::string_view value = field.value(other);
    const bool is_left_out = std::find(without.begin(), without.end(), value) != without.end();
    if (is_left_out || field.Same(other, profile)) continue;
    changes->push_back({other});
  }
}

DeclaredChange ChangeOf(const Profile& declared, const Profile& other,
                        const std::optional<CodecChoiceSet>& stated) {
  DeclaredChange change;
  change.of_profile = true;
  for (const CodecField& field : CodecFields()) {
    if (field.Same(declared, other)) continue;
    DeclaredWord word;
    word.word = field.key;
    word.value = field.value(other);
    word.is_default = stated ? !stated->contains(field.choice) : field.Same(declared, Profile());
    // Of what a rule leaves out any of these may have been.
    const bool is_any = stated && word.is_default && field.left_out == LeftOut::kAny;
    word.former = is_any ? ExpectedValues(field) : std::string(field.value(declared));
    change.words.push_back(std::move(word));
  }
  return change;
}

}  // namespace kvcheck
