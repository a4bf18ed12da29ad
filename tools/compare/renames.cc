#include "tools/compare/renames.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>

#include "reference/spec/error.h"
#include "reference/spec/text_lines.h"

namespace kvcheck {
namespace {

// Shown in messages that could list every tensor of a file.
constexpr size_t kNamesShown = 3;

[[noreturn]] void Refuse(const std::string& reason, const std::string& where) {
  throw Error(ErrorCode::kUsage, reason, where);
}

bool MayDelimit(char c) {
  return c > ' ' && c <= '~' &&
         std::string_view(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
             "_-\\^$.*+?()[]{}|=")
                 .find(c) == std::string_view::npos;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// Backslash notation of the replacement as the library's own: \1 is $01, \\ a backslash.
std::string FormatOf(std::string_view replacement, const std::string& where) {
  std::string format;
  for (size_t i = 0; i < replacement.size(); ++i) {
    if (replacement[i] != '\\') {
      format += replacement[i];
      continue;
    }
    if (++i == replacement.size()) Refuse("nothing follows the last \\", where);
    const char c = replacement[i];
    if (c >= '1' && c <= '9') {
      format += fmt::format("$0{}", c);
    } else if (c == '\\') {
      format += '\\';
    } else if (c == '$') {
      format += "$$";
    } else {
      Refuse(
          fmt::format("\\{} has no meaning in a replacement; it knows \\1 to \\9, \\\\ and \\$", c),
          where);
    }
  }
  return format;
}

// The text up to the next delimiter that is not escaped, with escaped ones as themselves; moves
// `from` after it.
std::string TakePart(std::string_view text, char delimiter, size_t* from,
                     const std::string& where) {
  std::string part;
  for (size_t i = *from; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      if (text[i + 1] != delimiter) part += '\\';
      part += text[++i];
    } else if (text[i] == delimiter) {
      *from = i + 1;
      return part;
    } else {
      part += text[i];
    }
  }
  Refuse(fmt::format("write s{0}REGEX{0}REPLACEMENT{0}: a '{0}' is missing", delimiter), where);
}

std::string Listed(const std::vector<std::string>& paths) {
  std::vector<std::string> shown(
      paths.begin(),
      paths.begin() + static_cast<std::ptrdiff_t>(std::min(kNamesShown, paths.size())));
  const size_t others = paths.size() - shown.size();
  return fmt::format("{}{}", fmt::join(shown, ", "),
                     others > 0 ? fmt::format(" and {} more", others) : "");
}

}  // namespace

std::string WithSlash(std::string_view name) {
  return name.starts_with('/') ? std::string(name) : "/" + std::string(name);
}

bool Substitution::IsOne(std::string_view text) {
  return text.size() >= 2 && text[0] == 's' && MayDelimit(text[1]);
}

Substitution::Substitution(const std::string& text, const std::string& where) : where_(where) {
  if (!IsOne(text)) {
    Refuse(
        "a rename is written s#REGEX#REPLACEMENT#, with any sign in place of # that means "
        "nothing in a regular expression",
        where);
  }
  size_t next = 2;
  const std::string regex = TakePart(text, text[1], &next, where);
  const std::string replacement = TakePart(text, text[1], &next, where);
  auto flags = std::regex::ECMAScript;
#ifdef __GLIBCXX__
  // Matches in polynomial time; libc++ gives up by itself where it would take exponential time.
  flags |= std::regex_constants::__polynomial;
#endif
  for (const char flag : text.substr(next)) {
    if (flag == 'g') {
      everywhere_ = true;
    } else if (flag == 'i') {
      flags |= std::regex::icase;
    } else {
      Refuse(fmt::format("there is no flag '{}'; the flags are g and i", flag), where);
    }
  }
  if (regex.empty()) Refuse("the regular expression is empty", where);
  if (regex.size() > kMostRegexBytes) {
    Refuse(fmt::format("a regular expression has at most {} bytes", kMostRegexBytes), where);
  }
  format_ = FormatOf(replacement, where);
  sees_slash_ = regex.starts_with("^/");
  try {
    regex_ = std::regex(regex, flags);
  } catch (const std::regex_error& error) {
    Refuse(fmt::format("not a regular expression (without back references): {}", error.what()),
           where);
  }
}

std::string Substitution::Apply(const std::string& path) const {
  const auto refuse_long = [&](size_t size) {
    Refuse(fmt::format("a name of {} bytes is too long to be renamed; the limit is {}", size,
                       kMostRenamedBytes),
           where_);
  };
  if (path.size() > kMostRenamedBytes) refuse_long(path.size());
  const std::string name = sees_slash_ || !path.starts_with('/') ? path : path.substr(1);
  const auto flags =
      everywhere_ ? std::regex_constants::format_default : std::regex_constants::format_first_only;
  try {
    const std::string renamed = std::regex_replace(name, regex_, format_, flags);
    if (renamed.size() > kMostRenamedBytes) refuse_long(renamed.size());
    return WithSlash(renamed);
  } catch (const std::regex_error& error) {
    Refuse(fmt::format("matching '{}' was given up: {}", path, error.what()), where_);
  }
}

void Renames::AddSubstitution(const std::string& text) {
  substitutions_.emplace_back(text, fmt::format("--map '{}'", text));
}

void Renames::AddFile(std::string_view content, const std::string& file) {
  TextLines lines(content);
  for (std::string_view whole; lines.Next(&whole);) {
    const std::string_view line = Trimmed(whole);
    if (line.empty() || line.starts_with('#')) continue;
    const std::string where = fmt::format("{}:{}", file, lines.number());
    if (Substitution::IsOne(line)) {
      substitutions_.emplace_back(std::string(line), where);
      continue;
    }
    const size_t gap = line.find_first_of(" \t");
    const std::string_view gold =
        gap == std::string_view::npos ? std::string_view() : Trimmed(line.substr(gap));
    if (gold.empty() || gold.find_first_of(" \t") != std::string_view::npos) {
      Refuse("a line is GOT_NAME GOLD_NAME, or s#REGEX#REPLACEMENT#", where);
    }
    const auto [found, added] =
        names_.emplace(WithSlash(line.substr(0, gap)), Name{WithSlash(gold), where});
    if (!added) {
      Refuse(fmt::format("{} has a line already, {}", found->first, found->second.where), where);
    }
  }
}

std::string Renames::Substituted(std::string path) const {
  for (const Substitution& substitution : substitutions_) path = substitution.Apply(path);
  return path;
}

std::map<std::string, std::string> Renames::Apply(const std::vector<std::string>& paths) const {
  std::map<std::string, std::string> renamed;
  std::vector<bool> changed(substitutions_.size());
  std::map<std::string, Name> unused = names_;
  for (const std::string& path : paths) {
    if (const auto named = names_.find(path); named != names_.end()) {
      const Name& name = named->second;
      if (name.gold == path && Substituted(path) == path) {
        Refuse(
            fmt::format("{} is named itself, and no substitution would rename it: leave the line "
                        "out, or write GOT_NAME GOLD_NAME",
                        path),
            name.where);
      }
      renamed[path] = named->second.gold;
      unused.erase(path);
      continue;
    }
    std::string name = path;
    for (size_t i = 0; i < substitutions_.size(); ++i) {
      std::string next = substitutions_[i].Apply(name);
      changed[i] = changed[i] || next != name;
      name = std::move(next);
    }
    renamed[path] = std::move(name);
  }
  std::vector<std::string> idle;
  for (const auto& [name, entry] : unused) {
    idle.push_back(fmt::format("{} ({})", name, entry.where));
  }
  if (!idle.empty()) {
    Refuse(fmt::format("GOT has no tensor {}; it has {}", fmt::join(idle, ", "), Listed(paths)),
           "--map-file");
  }
  for (size_t i = 0; i < substitutions_.size(); ++i) {
    if (!changed[i]) idle.push_back(substitutions_[i].where());
  }
  if (!idle.empty()) {
    Refuse(fmt::format("changes no name; GOT has {} (a regex sees the leading / where it starts "
                       "with ^/)",
                       Listed(paths)),
           fmt::format("{}", fmt::join(idle, ", ")));
  }
  return renamed;
}

}  // namespace kvcheck
