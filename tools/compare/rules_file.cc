#include "tools/compare/rules_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "reference/spec/enum_text.h"
#include "reference/spec/error.h"
#include "reference/spec/near_name.h"
#include "reference/spec/text_lines.h"

namespace kvcheck {
namespace {

constexpr EnumNames<NanPolicy, 3> kNanNames = {{{NanPolicy::kFail, "fail"},
                                                {NanPolicy::kEqual, "equal"},
                                                {NanPolicy::kEqualBits, "equal-bits"}}};
constexpr std::string_view kFields = "the fields after a rule are nan=, cast= and reason=\"...\"";

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// Takes the next field off a line: up to a blank that is neither escaped nor within quotes.
Piece TakeField(std::string_view line, size_t* from) {
  while (*from < line.size() && IsBlank(line[*from])) ++*from;
  const size_t begin = *from;
  bool quoted = false;
  while (*from < line.size() && (quoted || !IsBlank(line[*from]))) {
    if (line[*from] == '"') quoted = !quoted;
    if (line[*from] == '\\' && *from + 1 < line.size()) ++*from;
    ++*from;
  }
  const Piece field = {line.substr(begin, *from - begin), line};
  if (quoted) field.Refuse("a '\"' is missing at the end");
  return field;
}

std::string Unquoted(Piece value) {
  const std::string_view text = value.text;
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') {
    value.Refuse("write reason=\"TEXT\"");
  }
  std::string reason;
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] == '\\' && i + 2 < text.size()) ++i;
    reason += text[i];
  }
  if (std::all_of(reason.begin(), reason.end(), IsBlank)) value.Refuse("the reason is empty");
  return reason;
}

// Errors: kParse with the column.
TensorRule ParseFields(std::string_view line, size_t next) {
  TensorRule rule;
  const Piece tolerance = TakeField(line, &next);
  if (tolerance.text.empty()) tolerance.Refuse("a rule is missing after the pattern");
  rule.tolerance = ParseToleranceRule(tolerance);
  for (Piece field = TakeField(line, &next); !field.text.empty(); field = TakeField(line, &next)) {
    const size_t equals = std::min(field.text.find('='), field.text.size());
    const std::string_view key = field.text.substr(0, equals);
    const Piece value = {field.text.substr(std::min(equals + 1, field.text.size())), field.whole};
    const auto once = [&](bool is_given) {
      if (is_given) field.Refuse(fmt::format("'{}' is given twice", key));
    };
    if (equals == field.text.size()) field.Refuse(kFields);
    if (key == "nan") {
      once(rule.nan.has_value());
      rule.nan = ParseNanPolicy(value);
    } else if (key == "cast") {
      once(rule.cast.has_value());
      rule.cast = ParseDType(value.text);
      if (!rule.cast)
        value.Refuse(
            fmt::format("'{}' is not a type{}", value.text, DidYouMean(value.text, TypeNames())));
    } else if (key == "reason") {
      once(!rule.reason.empty());
      rule.reason = Unquoted(value);
    } else {
      field.Refuse(fmt::format("unknown key '{}'{}; {}", key, DidYouMean(key, "nan, cast, reason"),
                               kFields));
    }
  }
  return rule;
}

NanPolicy NanOf(const TensorRule& rule) {
  const bool exact = std::holds_alternative<ExactRule>(rule.tolerance);
  return rule.nan.value_or(exact ? NanPolicy::kEqualBits : NanPolicy::kFail);
}

int Laxity(NanPolicy policy) {
  switch (policy) {
    case NanPolicy::kFail:
      return 0;
    case NanPolicy::kEqualBits:
      return 1;
    case NanPolicy::kEqual:
      return 2;
  }
  return 2;
}

// Whether `later` may let pass what `earlier` would not. That exact takes a NaN for equal to its
// own bits and ulp:4 takes none is no loosening, unless somebody spoke of NaN.
bool Loosens(const TensorRule& later, const TensorRule& earlier) {
  if (!AtLeastAsTight(later.tolerance, earlier.tolerance)) return true;
  const bool of_nan = later.nan.has_value() || earlier.nan.has_value();
  return of_nan && Laxity(NanOf(later)) > Laxity(NanOf(earlier));
}

std::string RuleText(const TensorRule& rule) {
  std::string text = Print(rule.tolerance);
  if (rule.nan) text += fmt::format(" nan={}", OptionName(*rule.nan));
  return text;
}

}  // namespace

NanPolicy ParseNanPolicy(Piece piece) { return ParseEnum(kNanNames, piece); }

std::string_view OptionName(NanPolicy policy) { return NameIn(kNanNames, policy); }

SpecialPolicy TensorRule::Special() const {
  return {nan.value_or(NanPolicy::kFail), nan.value_or(NanPolicy::kEqualBits)};
}

void RuleSet::AddFile(std::string_view content, const std::string& file) {
  TextLines lines(content);
  for (std::string_view line; lines.Next(&line);) {
    const std::string where = fmt::format("{}:{}", file, lines.number());
    try {
      size_t next = 0;
      const Piece pattern = TakeField(line, &next);
      if (pattern.text.empty() || pattern.text.front() == '#') continue;
      TensorRule rule = ParseFields(line, next);
      rule.where = where;
      if (!rule.nan) rule.nan = default_.nan;
      if (!rule.cast) rule.cast = default_.cast;
      lines_.push_back({Glob(std::string(pattern.text)), std::move(rule)});
    } catch (const Error& error) {
      // "column 7" of the line is FILE:LINE:7.
      constexpr std::string_view kColumn = "column ";
      const std::string& context = error.context();
      const bool has_column = context.starts_with(kColumn);
      throw Error(ErrorCode::kParse,
                  has_column || context.empty() ? error.message()
                                                : fmt::format("{}: {}", context, error.message()),
                  has_column ? fmt::format("{}:{}", where, context.substr(kColumn.size())) : where);
    }
  }
}

void RuleSet::CheckUsed(const std::vector<std::string>& names) const {
  std::vector<std::string> idle;
  for (const Line& line : lines_) {
    const bool used = std::any_of(names.begin(), names.end(),
                                  [&](const std::string& name) { return line.glob.Matches(name); });
    if (!used) idle.push_back(fmt::format("{} ('{}')", line.rule.where, line.glob.text()));
  }
  if (idle.empty()) return;
  throw Error(ErrorCode::kSelection,
              fmt::format("no tensor matches the rule of {}", fmt::join(idle, ", ")), "--rules");
}

const TensorRule& RuleSet::Of(std::string_view name) const {
  const TensorRule* decides = &default_;
  for (const Line& line : lines_) {
    if (!line.glob.Matches(name)) continue;
    const TensorRule& rule = line.rule;
    if (!decides->where.empty() && rule.reason.empty() && Loosens(rule, *decides)) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("'{}' may let pass what '{}' ({}) would not, for {}: say why with "
                              "reason=\"...\"",
                              RuleText(rule), RuleText(*decides), decides->where, name),
                  rule.where);
    }
    decides = &rule;
  }
  return *decides;
}

const CodecRule* RuleSet::Replaced(std::string_view name) const {
  const ToleranceRule& decides = Of(name).tolerance;
  if (!std::holds_alternative<UlpRule>(decides) && !std::holds_alternative<AbsRelRule>(decides)) {
    return nullptr;
  }
  const CodecRule* replaced = std::get_if<CodecRule>(&default_.tolerance);
  for (const Line& line : lines_) {
    if (!line.glob.Matches(name)) continue;
    if (const auto* codec = std::get_if<CodecRule>(&line.rule.tolerance)) replaced = codec;
  }
  return replaced;
}

}  // namespace kvcheck
