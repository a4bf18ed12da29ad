#include "tools/corridor/cases_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "golden/text_file.h"
#include "reference/spec/case_kind.h"
#include "reference/spec/error.h"
#include "reference/spec/near_name.h"
#include "reference/spec/plan.h"
#include "reference/spec/profile.h"
#include "reference/spec/text_lines.h"

namespace kvcheck {
namespace {

bool IsPrintable(char c) { return c >= 0x20 && c <= 0x7e; }

std::string CommentLine(std::string_view comment) {
  std::string line = "# ";
  for (const char c : comment) line += IsPrintable(c) ? c : '?';
  return line + "\n";
}

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_.-+:").find(c) != std::string_view::npos;
}

class Parser {
 public:
  Parser(std::string_view content, const std::string& file) : lines_(content), file_(file) {}

  std::vector<CaseEntry> Run() {
    std::string_view line;
    while (lines_.Next(&line)) Line(line);
    End();
    if (entries_.empty()) throw Error(ErrorCode::kSelection, "the file has no cases", file_);
    return std::move(entries_);
  }

 private:
  [[noreturn]] void Refuse(std::string_view reason, int64_t line = 0) const {
    throw Error(ErrorCode::kParse, std::string(reason),
                fmt::format("{}:{}", file_, line > 0 ? line : lines_.number()));
  }

  void Line(std::string_view line) {
    for (const char c : line) {
      if (!IsPrintable(c)) Refuse("only printable ASCII stands in a file of cases");
    }
    if (line.starts_with('#')) return;
    if (line.empty()) return End();
    if (!line.empty() && (line.front() == ' ' || line.back() == ' ')) {
      Refuse("a line neither begins nor ends with a blank");
    }
    // What follows the case's first line belongs to its text.
    if (!text_.empty()) {
      text_ += fmt::format("{}\n", line);
      return;
    }
    const size_t space = line.find(' ');
    const std::string_view key = line.substr(0, space);
    const std::string_view value =
        space == std::string_view::npos ? std::string_view() : line.substr(space + 1);
    if (FindCaseKind(key)) {
      if (!entry_) Refuse("a case begins with a line 'case NAME'");
      text_ = fmt::format("{}\n", line);
      text_line_ = lines_.number();
      return;
    }
    if (key == "case") return Begin(value);
    Header(key, value);
  }

  void Begin(std::string_view name) {
    if (entry_) Refuse("an empty line stands between two cases");
    if (name.empty() || !std::all_of(name.begin(), name.end(), IsNameCharacter)) {
      Refuse("the name of a case is made of letters, digits and _.-+:");
    }
    if (!names_.insert(std::string(name)).second) {
      Refuse(fmt::format("a second case of the name '{}'", name));
    }
    entry_ = CaseEntry();
    entry_->name = name;
    entry_->line = lines_.number();
  }

  void Header(std::string_view key, std::string_view value) {
    const std::pair<std::string_view, std::string CaseEntry::*> fields[] = {
        {"reason", &CaseEntry::reason},
        {"plan", &CaseEntry::plan},
        {"profile", &CaseEntry::profile},
        {"impl", &CaseEntry::implementation}};
    for (const auto& [name, field] : fields) {
      if (key != name) continue;
      if (!entry_) Refuse("a case begins with a line 'case NAME'");
      if (value.empty()) Refuse(fmt::format("'{}' without a text", key));
      if (!((*entry_).*field).empty()) Refuse(fmt::format("'{}' twice", key));
      ((*entry_).*field) = value;
      Checked([&] {
        if (key == "plan") ParsePlan(value);
        if (key == "profile") ParseProfile(value);
      });
      return;
    }
    Refuse(
        fmt::format("'{}' is neither case, reason, plan, profile, impl nor the kind of a case "
                    "(attention, cache, codec){}",
                    Shortened(key, 80),
                    DidYouMean(key, "case, reason, plan, profile, impl, attention, cache, codec")));
  }

  template <typename Parse>
  void Checked(const Parse& parse, int64_t line = 0) const {
    try {
      parse();
    } catch (const Error& error) {
      const std::string where = fmt::format("{}:{}", file_, line > 0 ? line : lines_.number());
      throw Error(error.code(),
                  error.context().empty() ? error.message()
                                          : fmt::format("{}: {}", error.context(), error.message()),
                  where);
    }
  }

  void End() {
    if (!entry_) return;
    if (text_.empty()) Refuse(fmt::format("case '{}' has no text", entry_->name), entry_->line);
    if (entry_->reason.empty()) {
      Refuse(fmt::format("case '{}' has no reason", entry_->name), entry_->line);
    }
    // The trace's own line numbers count from its first line.
    text_.pop_back();
    Checked([&] { entry_->c = ParseCase(text_); }, text_line_);
    const CaseKind kind = KindOf(entry_->c);
    if (!IsAsked(kind)) {
      Refuse("a tensor case compares stored tensors, which a file of cases has not", text_line_);
    }
    if (!entry_->plan.empty() && !HasPlan(kind)) {
      Refuse("a plan belongs to a case of attention", entry_->line);
    }
    if (!entry_->profile.empty() && !HasProfile(kind)) {
      Refuse("a cache is judged by the profile that the implementation states", entry_->line);
    }
    entries_.push_back(std::move(*entry_));
    entry_.reset();
    text_.clear();
  }

  TextLines lines_;
  const std::string& file_;
  std::optional<CaseEntry> entry_;
  std::string text_;
  int64_t text_line_ = 0;
  std::set<std::string> names_;
  std::vector<CaseEntry> entries_;
};

}  // namespace

std::vector<CaseEntry> ParseCases(std::string_view content, const std::string& file) {
  return Parser(content, file).Run();
}

std::string ReadTextFile(const std::string& path, const std::function<void()>& on_wait) {
  return ReadWholeText(path, kMostTextBytes, on_wait);
}

std::vector<CaseEntry> ReadCases(const std::string& path, const std::function<void()>& on_wait) {
  return ParseCases(ReadTextFile(path, on_wait), path);
}

bool FitsCasesFile(std::string_view implementation) {
  return std::all_of(implementation.begin(), implementation.end(), IsPrintable) &&
         (implementation.empty() ||
          (implementation.front() != ' ' && implementation.back() != ' '));
}

std::string Print(const CaseEntry& entry, const std::vector<std::string>& comments) {
  std::string text;
  for (const std::string& comment : comments) text += CommentLine(comment);
  text += fmt::format("case {}\nreason {}\n", entry.name, entry.reason);
  if (!entry.plan.empty()) text += fmt::format("plan {}\n", entry.plan);
  if (!entry.profile.empty()) text += fmt::format("profile {}\n", entry.profile);
  if (!FitsCasesFile(entry.implementation)) {
    text +=
        CommentLine("found on an implementation that this file cannot name; give it with --impl: " +
                    entry.implementation);
  } else if (!entry.implementation.empty()) {
    text += fmt::format("impl {}\n", entry.implementation);
  }
  return text + CaseLines(entry.c);
}

namespace {

std::string LinesOf(const CacheCase& c) { return PrintLines(c); }
std::string LinesOf(const PrefixCase& c) { return PrintLines(c); }
template <typename C>
std::string LinesOf(const C& c) {
  return Print(Case(c)) + "\n";
}

}  // namespace

std::string CaseLines(const Case& c) {
  return std::visit([](const auto& kind) { return LinesOf(kind); }, c);
}

std::string CaseName(std::string_view text) {
  std::string name;
  for (const char c : text) {
    // Also the name of a file.
    if (IsNameCharacter(c) && c != ':') {
      name += c;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? "case" : name;
}

}  // namespace kvcheck
