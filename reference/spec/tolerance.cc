#include "reference/spec/tolerance.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "reference/spec/codec_choices.h"

namespace kvcheck {
namespace {

constexpr std::string_view kRules =
    "a rule is exact, ulp:N, abs:X, rel:Y, abs:X,rel:Y, codec:FORMAT or derived";
constexpr std::string_view kCodec = "codec:";

// Integers of 64 bits are compared by distances that no double need be.
std::optional<uint64_t> ParseWideInteger(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole ? std::optional(value) : std::nullopt;
}

// value - high, for the double nearest to value: below 2^11 in size, so that it survives modulo
// 2^64.
double RestOf(uint64_t value, double high) {
  const uint64_t back = high >= 0x1p64 ? 0 : static_cast<uint64_t>(high);
  return static_cast<double>(static_cast<int64_t>(value - back));
}

std::string PrintAbsolute(const AbsRelRule& rule) {
  if (rule.absolute_low == 0) return PrintReal(rule.absolute);
  const uint64_t high = rule.absolute >= 0x1p64 ? 0 : static_cast<uint64_t>(rule.absolute);
  return fmt::format("{}", high + static_cast<uint64_t>(static_cast<int64_t>(rule.absolute_low)));
}

// One FIELD=VALUE after the format.
void ParseCodecField(Piece field, CodecRule* rule) {
  const size_t equals = std::min(field.text.find('='), field.text.size());
  const std::string_view key = field.text.substr(0, equals);
  const Piece value = {field.text.substr(std::min(equals + 1, field.text.size())), field.whole};
  const auto once = [&](bool is_given, bool has_meaning, std::string_view formats) {
    if (is_given) field.Refuse(fmt::format("'{}' is given twice", key));
    if (!has_meaning) field.Refuse(fmt::format("'{}' is a choice of {} alone", key, formats));
  };
  if (const CodecField* row = FindCodecField(key)) {
    once(rule->stated.contains(row->choice), Leaves(rule->format, row->choice), row->formats);
    row->parse(value, &rule->profile);
    rule->stated.insert(row->choice);
  } else if (key == "codes") {
    once(rule->codes_exact, !IsPlain(rule->format), "formats with codes");
    if (value.text != "exact") value.Refuse("codes=exact, or leave it out");
    rule->codes_exact = true;
  } else {
    std::string known;
    for (const CodecField& known_field : CodecFields()) {
      known += fmt::format("{}{}=", known.empty() ? "" : ", ", known_field.key);
    }
    field.Refuse(fmt::format("the fields of a codec rule are {} and codes=exact", known));
  }
}

CodecRule ParseCodec(Piece piece) {
  const std::vector<Piece> parts = Split({piece.text.substr(kCodec.size()), piece.whole}, ',');
  CodecRule rule;
  bool has_scale_type = true;
  rule.format = ParseKvFormat(parts[0], &has_scale_type);
  if (IsOfCachesAlone(rule.format)) {
    parts[0].Refuse("a stored row by itself has no newest tokens: leave the residual out");
  }
  rule.scale_type_of_want = !has_scale_type;
  for (size_t i = 1; i < parts.size(); ++i) ParseCodecField(parts[i], &rule);
  for (const CodecField& field : CodecFields()) {
    if (rule.codes_exact && IsOpen(rule, field) && field.left_out == LeftOut::kAny) {
      piece.Refuse(fmt::format("codes=exact needs {}=, which names the encoder", field.key));
    }
  }
  return rule;
}

std::string PrintCodec(const CodecRule& rule) {
  std::string text = Print(rule.format);
  if (rule.scale_type_of_want) text.resize(text.rfind(':'));
  text.insert(0, kCodec);
  for (const CodecField& field : CodecFields()) {
    if (rule.stated.contains(field.choice)) text += "," + Print(field, rule.profile);
  }
  if (rule.codes_exact) text += ",codes=exact";
  return text;
}

// Passes nothing but the numbers of want themselves.
bool IsZero(const ToleranceRule& rule) {
  if (std::holds_alternative<ExactRule>(rule)) return true;
  if (const auto* ulp = std::get_if<UlpRule>(&rule)) return ulp->ulps == 0;
  const auto* sum = std::get_if<AbsRelRule>(&rule);
  return sum != nullptr && sum->absolute == 0 && sum->relative == 0;
}

// Whether what a says of the field admits nothing more than what b says of it.
bool AtLeastAsTight(const CodecField& field, const CodecRule& a, const CodecRule& b) {
  const bool same = field.Same(a.profile, b.profile);
  switch (field.left_out) {
    case LeftOut::kDefault:
      return same;
    case LeftOut::kAny: {
      const bool is_stated = a.stated.contains(field.choice);
      if (b.stated.contains(field.choice)) return is_stated && same;
      const std::vector<Profile> expected = ExpectedVariants(field, Profile());
      return !is_stated || std::any_of(expected.begin(), expected.end(), [&](const Profile& value) {
        return field.Same(value, a.profile);
      });
    }
    case LeftOut::kLoosest:
      break;
  }
  // Of decode. A row that is written out is rounded once at least, so that exact promises what
  // one_rounding does; a second rounding adds terms to the bound and takes none away.
  const auto two = [&](const CodecRule& rule) {
    return !rule.stated.contains(field.choice) ||
           rule.profile.decode == DecodeRounding::kTwoRoundings;
  };
  return two(b) || !two(a);
}

bool CodecAtLeastAsTight(CodecRule a, CodecRule b) {
  const auto scale = [](CodecRule& rule) {
    if (rule.scale_type_of_want) rule.format = WithRowType(rule.format, DType::kFloat32);
  };
  scale(a);
  scale(b);
  if (a.format != b.format || a.scale_type_of_want != b.scale_type_of_want) return false;
  for (const CodecField& field : CodecFields()) {
    if (!AtLeastAsTight(field, a, b)) return false;
  }
  return a.codes_exact || !b.codes_exact;
}

}  // namespace

bool IsOpen(const CodecRule& rule, const CodecField& field) {
  return Leaves(rule.format, field.choice) && !rule.stated.contains(field.choice);
}

std::string Print(const ToleranceRule& rule) {
  if (std::holds_alternative<ExactRule>(rule)) return "exact";
  if (std::holds_alternative<DerivedRule>(rule)) return "derived";
  if (const auto* ulp = std::get_if<UlpRule>(&rule)) return fmt::format("ulp:{}", ulp->ulps);
  if (const auto* codec = std::get_if<CodecRule>(&rule)) return PrintCodec(*codec);
  const auto& sum = std::get<AbsRelRule>(rule);
  return fmt::format("abs:{},rel:{}", PrintAbsolute(sum), PrintReal(sum.relative));
}

ToleranceRule ParseToleranceRule(Piece piece) {
  if (piece.text == "exact") return ExactRule{};
  if (piece.text == "derived") return DerivedRule{};
  if (piece.text.substr(0, kCodec.size()) == kCodec) return ParseCodec(piece);
  AbsRelRule sum;
  bool has_absolute = false;
  bool has_relative = false;
  for (const Piece& term : Split(piece, ',')) {
    const std::vector<Piece> parts = Split(term, ':');
    if (parts.size() != 2) term.Refuse(kRules);
    if (parts[0].text == "ulp" && parts[0].text.data() == piece.text.data()) {
      if (term.text.size() != piece.text.size()) term.Refuse("ulp:N stands alone");
      return UlpRule{ParseInt(parts[1], 0, std::numeric_limits<int64_t>::max())};
    }
    const bool absolute = parts[0].text == "abs";
    bool* seen = absolute ? &has_absolute : parts[0].text == "rel" ? &has_relative : nullptr;
    if (seen == nullptr || *seen) term.Refuse(kRules);
    *seen = true;
    const double value = ParseReal(parts[1]);
    if (!(value >= 0)) parts[1].Refuse("a tolerance is at least 0");
    (absolute ? sum.absolute : sum.relative) = value;
    if (!absolute) continue;
    if (const auto whole = ParseWideInteger(parts[1].text)) {
      sum.absolute_low = RestOf(*whole, value);
    }
  }
  return sum;
}

bool AtLeastAsTight(const ToleranceRule& a, const ToleranceRule& b) {
  if (std::holds_alternative<ExactRule>(a)) return true;
  if (std::holds_alternative<ExactRule>(b)) return false;  // not even 0 tells zeros of two signs
  if (IsZero(a)) {
    const auto* codec = std::get_if<CodecRule>(&b);
    return codec == nullptr || !codec->codes_exact;
  }
  if (a.index() != b.index()) return false;
  if (const auto* ulp = std::get_if<UlpRule>(&a)) return ulp->ulps <= std::get<UlpRule>(b).ulps;
  if (const auto* sum = std::get_if<AbsRelRule>(&a)) {
    const auto& other = std::get<AbsRelRule>(b);
    return std::pair(sum->absolute, sum->absolute_low) <=
               std::pair(other.absolute, other.absolute_low) &&
           sum->relative <= other.relative;
  }
  if (const auto* codec = std::get_if<CodecRule>(&a)) {
    return CodecAtLeastAsTight(*codec, std::get<CodecRule>(b));
  }
  return true;  // derived
}

}  // namespace kvcheck
