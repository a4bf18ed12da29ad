#include "tools/campaign/known_failures.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "reference/spec/case.h"
#include "reference/spec/error.h"
#include "reference/spec/glob.h"
#include "reference/spec/near_name.h"
#include "reference/spec/text_lines.h"

namespace kvcheck {
namespace {

class LineParser {
 public:
  LineParser(std::string_view line, const std::string& where) : line_(line), where_(where) {}

  KnownFailure Run() {
    KnownFailure known;
    const std::pair<std::string_view, std::string KnownFailure::*> fields[] = {
        {"signature", &KnownFailure::signature}, {"impl", &KnownFailure::implementation},
        {"version", &KnownFailure::version},     {"reason", &KnownFailure::reason},
        {"expires", &KnownFailure::expires},     {"case", &KnownFailure::case_name}};
    while (Blanks(), at_ < line_.size()) {
      const size_t column = at_ + 1;
      const std::string key = Key();
      const std::string value = Value();
      const auto* field = std::find_if(std::begin(fields), std::end(fields),
                                       [&](const auto& entry) { return entry.first == key; });
      if (field == std::end(fields)) {
        constexpr std::string_view kKnown = "signature, impl, version, reason, expires, case";
        Refuse(column, fmt::format("there is no '{}'{}: known are {}", key, DidYouMean(key, kKnown),
                                   kKnown));
      }
      if (!(known.*(field->second)).empty()) Refuse(column, fmt::format("'{}' twice", key));
      if (value.empty()) Refuse(column, fmt::format("'{}' is empty", key));
      if (key == "expires" && !IsDate(value)) {
        Refuse(column, "a date is YYYY-MM-DD, of a day that exists");
      }
      if (key == "version") {
        try {
          Glob glob(value);
        } catch (const Error& error) {
          Refuse(column, error.message());
        }
      }
      known.*(field->second) = value;
    }
    for (const auto& [key, field] : fields) {
      if (key != "case" && (known.*field).empty()) {
        Refuse(line_.size() + 1, fmt::format("'{}=' is missing", key));
      }
    }
    return known;
  }

 private:
  [[noreturn]] void Refuse(size_t column, const std::string& reason) const {
    throw Error(ErrorCode::kParse, reason, fmt::format("{}:{}", where_, column));
  }

  void Blanks() {
    while (at_ < line_.size() && line_[at_] == ' ') ++at_;
  }

  std::string Key() {
    const size_t end = line_.find_first_of("= ", at_);
    if (end == std::string_view::npos || line_[end] != '=') {
      Refuse(at_ + 1, "fields are key=value, with blanks between");
    }
    const std::string key(line_.substr(at_, end - at_));
    at_ = end + 1;
    return key;
  }

  std::string Value() {
    std::string value;
    if (at_ >= line_.size() || line_[at_] != '"') {
      const size_t end = std::min(line_.find(' ', at_), line_.size());
      value = line_.substr(at_, end - at_);
      if (value.find('"') != std::string::npos) Refuse(at_ + 1, "a quote within a value");
      at_ = end;
      return value;
    }
    const size_t begin = ++at_;
    for (; at_ < line_.size() && line_[at_] != '"'; ++at_) {
      if (line_[at_] == '\\' && at_ + 1 < line_.size()) ++at_;
      value += line_[at_];
    }
    if (at_ >= line_.size()) Refuse(begin, "a quote is not closed");
    ++at_;
    if (at_ < line_.size() && line_[at_] != ' ') Refuse(at_ + 1, "a blank is missing");
    return value;
  }

  std::string_view line_;
  const std::string& where_;
  size_t at_ = 0;
};

constexpr char kIndent = ' ';
constexpr std::string_view kTrace = "trace ";

KnownTrace ParseTrace(std::string_view line, const std::string& where) {
  const size_t begin = std::min(line.find_first_not_of(kIndent), line.size());
  const std::string_view text = line.substr(begin);
  if (!text.starts_with(kTrace)) {
    throw Error(ErrorCode::kParse, "what belongs to the entry above is 'trace CASE'",
                fmt::format("{}:{}", where, begin + 1));
  }
  KnownTrace trace;
  trace.text = text.substr(kTrace.size());
  try {
    const Case c = ParseCase(trace.text);
    Validate(c);
    trace.form = CanonicalForm(c);
    trace.traits = TraitsOf(c, -1);
  } catch (const Error& error) {
    throw Error(ErrorCode::kParse, fmt::format("{} ({})", error.message(), error.context()),
                fmt::format("{}:{}", where, begin + 1 + kTrace.size()));
  }
  return trace;
}

// In quotes, as LineParser reads it.
std::string Quoted(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += c == '\n' ? ' ' : c;
  }
  return text + '"';
}

}  // namespace

bool IsDate(const std::string& text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  for (const size_t i : {0u, 1u, 2u, 3u, 5u, 6u, 8u, 9u}) {
    if (text[i] < '0' || text[i] > '9') return false;
  }
  const std::chrono::year_month_day date{std::chrono::year(std::stoi(text.substr(0, 4))),
                                         std::chrono::month(unsigned(std::stoi(text.substr(5, 2)))),
                                         std::chrono::day(unsigned(std::stoi(text.substr(8, 2))))};
  return date.ok();
}

bool KnownFailure::Holds(const std::string& form) const {
  return std::any_of(traces.begin(), traces.end(),
                     [&](const KnownTrace& trace) { return trace.form == form; });
}

std::string Print(const KnownFailure& known) {
  std::string text = fmt::format("signature={} impl={} version={} reason={} expires={}",
                                 Quoted(known.signature), Quoted(known.implementation),
                                 Quoted(known.version), Quoted(known.reason), known.expires);
  if (!known.case_name.empty()) text += " case=" + known.case_name;
  text += "\n";
  for (const KnownTrace& trace : known.traces) {
    text += fmt::format("{0}{0}{1}{2}\n", kIndent, kTrace, trace.text);
  }
  return text;
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

KnownFailures::KnownFailures(std::string_view content, const std::string& file) : file_(file) {
  TextLines lines(content);
  for (std::string_view line; lines.Next(&line);) {
    if (line.empty() || line.starts_with('#')) continue;
    const std::string where = fmt::format("{}:{}", file, lines.number());
    if (line.starts_with(kIndent)) {
      if (entries_.empty()) throw Error(ErrorCode::kParse, "a trace of no entry", where + ":1");
      entries_.back().traces.push_back(ParseTrace(line, where));
      continue;
    }
    KnownFailure known = LineParser(line, where).Run();
    known.line = lines.number();
    entries_.push_back(std::move(known));
  }
}

bool KnownFailures::IsOf(const KnownFailure& known, const std::string& implementation,
                         const std::string& version) {
  return known.implementation == implementation && Glob(known.version).Matches(version);
}

bool KnownFailures::HasExpired(const KnownFailure& known, const std::string& today) {
  return known.expires < today;  // both YYYY-MM-DD
}

KnownCauses::KnownCauses(const KnownFailures& known, const std::string& implementation,
                         const std::string& version, const std::string& today) {
  for (const KnownFailure& entry : known.entries()) {
    if (!KnownFailures::IsOf(entry, implementation, version)) continue;
    if (!KnownFailures::HasExpired(entry, today)) entries_.push_back(&entry);
  }
}

bool KnownCauses::HasTraces(const std::string& signature) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const KnownFailure* known) {
    return known->signature == signature && !known->traces.empty();
  });
}

const KnownFailure* KnownCauses::Find(const std::string& signature, const std::string& form) const {
  const KnownFailure* by_signature = nullptr;
  for (const KnownFailure* known : entries_) {
    if (known->signature != signature) continue;
    if (known->Holds(form)) return known;
    if (known->traces.empty()) by_signature = known;
  }
  return by_signature;
}

bool KnownCauses::MayBeKnown(const std::string& signature, const CaseTraits& drawn) const {
  for (const KnownFailure* known : entries_) {
    if (known->signature != signature) continue;
    for (const KnownTrace& trace : known->traces) {
      if (MayShrinkTo(drawn, trace.traits)) return true;
    }
  }
  return false;
}

}  // namespace kvcheck
