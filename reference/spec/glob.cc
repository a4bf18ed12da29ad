#include "reference/spec/glob.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

[[noreturn]] void Refuse(const std::string& pattern, std::string_view reason) {
  // What is too long to be a pattern is too long for a message.
  constexpr size_t kShown = 80;
  throw Error(ErrorCode::kUsage, std::string(reason),
              fmt::format("pattern '{}'",
                          pattern.size() <= kShown ? pattern : pattern.substr(0, kShown) + "..."));
}

// The index after the bracket expression that starts at pattern[i] == '['; nullopt when it is not
// closed. A "]" that comes first is a member.
std::optional<size_t> BracketEnd(std::string_view pattern, size_t i) {
  size_t k = i + 1;
  if (k < pattern.size() && (pattern[k] == '!' || pattern[k] == '^')) ++k;
  if (k < pattern.size() && pattern[k] == ']') ++k;
  while (k < pattern.size() && pattern[k] != ']') {
    if (pattern[k] == '\\') ++k;
    ++k;
  }
  return k < pattern.size() ? std::optional<size_t>(k + 1) : std::nullopt;
}

// members: what stands between the brackets.
bool IsMember(std::string_view members, char c) {
  const bool negated = !members.empty() && (members[0] == '!' || members[0] == '^');
  if (negated) members.remove_prefix(1);
  const auto code = [](char x) { return static_cast<unsigned char>(x); };
  bool found = false;
  size_t i = 0;
  const auto next = [&] {
    if (members[i] == '\\' && i + 1 < members.size()) ++i;
    return members[i++];
  };
  while (i < members.size()) {
    const char low = next();
    char high = low;
    if (i + 1 < members.size() && members[i] == '-') {
      ++i;
      high = next();
    }
    found = found || (code(low) <= code(c) && code(c) <= code(high));
  }
  return found != negated;
}

// Length of the pattern's first element when it matches c, 0 when it does not. Not for '*'.
size_t MatchOne(std::string_view pattern, char c) {
  switch (pattern[0]) {
    case '?':
      return 1;
    case '[': {
      const size_t end = *BracketEnd(pattern, 0);
      return IsMember(pattern.substr(1, end - 2), c) ? end : 0;
    }
    case '\\':
      return pattern[1] == c ? 2 : 0;
    default:
      return pattern[0] == c ? 1 : 0;
  }
}

}  // namespace

Glob::Glob(std::string pattern) : text_(std::move(pattern)) {
  if (text_.empty()) Refuse(text_, "an empty pattern matches nothing");
  if (text_.size() > kMostBytes) {
    Refuse(text_, fmt::format("a pattern has at most {} bytes", kMostBytes));
  }
  for (size_t i = 0; i < text_.size(); ++i) {
    if (text_[i] == '\\') {
      if (++i == text_.size()) Refuse(text_, "nothing follows the last \\");
    } else if (text_[i] == '[') {
      const std::optional<size_t> end = BracketEnd(text_, i);
      if (!end) Refuse(text_, "'[' is not closed; write \\[ for the character");
      i = *end - 1;
    }
  }
}

// Only the last star needs to be tried again: one that matched further left could match no more
// than it does already.
bool Glob::Matches(std::string_view path) const {
  if (text_[0] != '/' && path.starts_with('/')) path.remove_prefix(1);
  const std::string_view pattern = text_;
  size_t p = 0;
  size_t i = 0;
  std::optional<size_t> after_star;
  size_t star_end = 0;  // the star has taken path up to here
  while (i < path.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      star_end = i;
      continue;
    }
    const size_t length = p < pattern.size() ? MatchOne(pattern.substr(p), path[i]) : 0;
    if (length > 0) {
      p += length;
      ++i;
    } else if (after_star) {
      p = *after_star;
      i = ++star_end;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string Glob::Of(std::string_view path) {
  std::string pattern;
  for (const char c : path) {
    if (c == '*' || c == '?' || c == '[' || c == '\\') pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::vector<Glob> ParseGlobs(const std::vector<std::string>& patterns) {
  std::vector<Glob> globs;
  for (const std::string& pattern : patterns) globs.emplace_back(pattern);
  return globs;
}

bool MatchesAny(const std::vector<Glob>& globs, std::string_view path) {
  for (const Glob& glob : globs) {
    if (glob.Matches(path)) return true;
  }
  return false;
}

bool MatchesGlob(const std::string& pattern, std::string_view text) {
  return Glob(pattern).Matches(text);
}

bool MatchesAnyGlob(const std::vector<std::string>& patterns, std::string_view text) {
  return patterns.empty() ||
         std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return MatchesGlob(pattern, text); });
}

}  // namespace kvcheck
