#include "reference/spec/profile.h"

#include "reference/spec/codec_choices.h"
#include "reference/spec/enum_text.h"
#include "reference/spec/text.h"

namespace kvcheck {
namespace {

constexpr EnumNames<MaskedRow, 4> kMaskedRow = {{{MaskedRow::kZero, "zero"},
                                                 {MaskedRow::kNan, "nan"},
                                                 {MaskedRow::kMean, "mean"},
                                                 {MaskedRow::kAny, "any"}}};
constexpr EnumNames<bool, 2> kMaximum = {{{false, "visible"}, {true, "all"}}};

}  // namespace

std::string Print(const Profile& profile) {
  const Profile defaults;
  std::string text;
  const auto add = [&](std::string_view key, std::string_view value) {
    if (!text.empty()) text += ' ';
    text += std::string(key) + "=" + std::string(value);
  };
  if (profile.masked_row != defaults.masked_row) {
    add("masked_row", NameIn(kMaskedRow, profile.masked_row));
  }
  if (profile.mask_value == MaskValueKind::kLowest) add("mask_value", "lowest");
  if (profile.mask_value == MaskValueKind::kNumber) {
    add("mask_value", PrintReal(profile.mask_number));
  }
  if (profile.maximum_over_all) add("maximum", "all");
  for (const CodecField& field : CodecFields()) {
    if (!field.Same(profile, defaults)) add(field.key, field.value(profile));
  }
  return text;
}

Profile ParseProfile(std::string_view text) {
  Profile profile;
  std::string keys = "masked_row, mask_value, maximum";
  for (const CodecField& field : CodecFields()) keys += ", " + std::string(field.key);
  Fields fields(WholeLine(text), keys);
  Piece value;
  if (fields.TakeIf("masked_row", &value)) profile.masked_row = ParseEnum(kMaskedRow, value);
  if (fields.TakeIf("mask_value", &value)) {
    if (value.text == "-inf") {
      profile.mask_value = MaskValueKind::kMinusInfinity;
    } else if (value.text == "lowest") {
      profile.mask_value = MaskValueKind::kLowest;
    } else {
      profile.mask_value = MaskValueKind::kNumber;
      profile.mask_number = ParseReal(value);
    }
  }
  if (fields.TakeIf("maximum", &value)) profile.maximum_over_all = ParseEnum(kMaximum, value);
  for (const CodecField& field : CodecFields()) {
    if (fields.TakeIf(field.key, &value)) field.parse(value, &profile);
  }
  fields.Finish();
  return profile;
}

}  // namespace kvcheck
