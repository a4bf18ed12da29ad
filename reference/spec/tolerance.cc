#include "reference/spec/tolerance.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

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
  const auto leaves = [&](CodecChoice choice) { return Leaves(rule->format, choice); };
  if (key == "decode") {
    once(rule->decode.has_value(), leaves(CodecChoice::kDecode),
         "formats whose values are rounded");
    rule->decode = ParseDecodeRounding(value);
  } else if (key == "encode") {
    once(rule->encode.has_value(), leaves(CodecChoice::kEncode), "affine formats");
    rule->encode = ParseAffineEncoder(value);
  } else if (key == "ggml_encode") {
    once(rule->ggml_encode.has_value(), leaves(CodecChoice::kGgmlEncode), "ggml formats");
    rule->ggml_encode = ParseGgmlEncoder(value);
  } else if (key == "fp8_overflow") {
    once(rule->fp8_overflow.has_value(), leaves(CodecChoice::kFp8Overflow), "fp8 formats");
    rule->fp8_overflow = ParseFp8Overflow(value);
  } else if (key == "mx_encode") {
    once(rule->mx_encode.has_value(), leaves(CodecChoice::kMxEncode), "mxfp4 and mxfp8");
    rule->mx_encode = ParseMxEncoder(value);
  } else if (key == "nvfp4_encode") {
    once(rule->nvfp4_encode.has_value(), leaves(CodecChoice::kNvfp4Encode), "nvfp4");
    rule->nvfp4_encode = ParseNvfp4Encoder(value);
  } else if (key == "turboquant") {
    once(rule->turboquant.has_value(), leaves(CodecChoice::kTurboquant), "turboquant formats");
    rule->turboquant = ParseTurboquantWriter(value);
  } else if (key == "token_encode") {
    once(rule->token_encode.has_value(), leaves(CodecChoice::kTokenEncode),
         "formats with a scale per token");
    rule->token_encode = ParseTokenEncoder(value);
  } else if (key == "codes") {
    once(rule->codes_exact, !IsPlain(rule->format), "formats with codes");
    if (value.text != "exact") value.Refuse("codes=exact, or leave it out");
    rule->codes_exact = true;
  } else {
    field.Refuse(
        "the fields of a codec rule are decode=, encode=, ggml_encode=, fp8_overflow=, mx_encode=, "
        "nvfp4_encode=, turboquant=, token_encode= and codes=exact");
  }
}

CodecRule ParseCodec(Piece piece) {
  const std::vector<Piece> parts = Split({piece.text.substr(kCodec.size()), piece.whole}, ',');
  CodecRule rule;
  bool has_scale_type = true;
  rule.format = ParseKvFormat(parts[0], &has_scale_type);
  rule.scale_type_of_want = !has_scale_type;
  for (size_t i = 1; i < parts.size(); ++i) ParseCodecField(parts[i], &rule);
  const auto is_open = [&](CodecChoice choice, bool is_named) {
    return rule.codes_exact && Leaves(rule.format, choice) && !is_named;
  };
  if (is_open(CodecChoice::kEncode, rule.encode.has_value())) {
    piece.Refuse("codes=exact needs encode=, which names the encoder");
  }
  if (is_open(CodecChoice::kGgmlEncode, rule.ggml_encode.has_value())) {
    piece.Refuse("codes=exact needs ggml_encode=, which names the encoder");
  }
  if (is_open(CodecChoice::kMxEncode, rule.mx_encode.has_value())) {
    piece.Refuse("codes=exact needs mx_encode=, which names the encoder");
  }
  if (is_open(CodecChoice::kNvfp4Encode, rule.nvfp4_encode.has_value())) {
    piece.Refuse("codes=exact needs nvfp4_encode=, which names the encoder");
  }
  if (is_open(CodecChoice::kTokenEncode, rule.token_encode.has_value())) {
    piece.Refuse("codes=exact needs token_encode=, which names the encoder");
  }
  return rule;
}

std::string PrintCodec(const CodecRule& rule) {
  std::string text = Print(rule.format);
  if (rule.scale_type_of_want) text.resize(text.rfind(':'));
  text.insert(0, kCodec);
  if (rule.decode) text += fmt::format(",decode={}", Name(*rule.decode));
  if (rule.encode) text += fmt::format(",encode={}", Name(*rule.encode));
  if (rule.ggml_encode) text += fmt::format(",ggml_encode={}", Name(*rule.ggml_encode));
  if (rule.fp8_overflow) text += fmt::format(",fp8_overflow={}", Name(*rule.fp8_overflow));
  if (rule.mx_encode) text += fmt::format(",mx_encode={}", Name(*rule.mx_encode));
  if (rule.nvfp4_encode) text += fmt::format(",nvfp4_encode={}", Name(*rule.nvfp4_encode));
  if (rule.turboquant) text += fmt::format(",turboquant={}", Name(*rule.turboquant));
  if (rule.token_encode) text += fmt::format(",token_encode={}", Name(*rule.token_encode));
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

bool CodecAtLeastAsTight(CodecRule a, CodecRule b) {
  const auto scale = [](CodecRule& rule) {
    if (rule.scale_type_of_want) rule.format = WithRowType(rule.format, DType::kFloat32);
  };
  scale(a);
  scale(b);
  if (a.format != b.format || a.scale_type_of_want != b.scale_type_of_want) return false;
  // A row that is written out is rounded once at least, so that exact promises what one_rounding
  // does; a second rounding adds terms to the bound and takes none away.
  const auto two = [](const CodecRule& rule) {
    return rule.decode.value_or(DecodeRounding::kTwoRoundings) == DecodeRounding::kTwoRoundings;
  };
  if (two(a) && !two(b)) return false;
  if (b.encode.has_value() && a.encode != b.encode) return false;
  if (b.ggml_encode.has_value() && a.ggml_encode != b.ggml_encode) return false;
  if (b.mx_encode.has_value() && a.mx_encode != b.mx_encode) return false;
  if (b.nvfp4_encode.has_value() && a.nvfp4_encode != b.nvfp4_encode) return false;
  if (b.token_encode.has_value() && a.token_encode != b.token_encode) return false;
  if (a.fp8_overflow.value_or(Fp8Overflow::kNan) != b.fp8_overflow.value_or(Fp8Overflow::kNan)) {
    return false;
  }
  if (a.turboquant.value_or(TurboquantWriter::kMlxVlm) !=
      b.turboquant.value_or(TurboquantWriter::kMlxVlm)) {
    return false;
  }
  return a.codes_exact || !b.codes_exact;
}

}  // namespace

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
