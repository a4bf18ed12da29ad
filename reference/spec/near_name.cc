#include "reference/spec/near_name.h"

#include <algorithm>
#include <cstddef>
#include <tuple>

#include "reference/spec/dtype.h"

namespace kvcheck {
namespace {

// Beyond this a text is no mistyped name, and the table of distances would grow with its square.
constexpr size_t kMostNameBytes = 64;

// Optimal string alignment.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> table(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        table[i][j] = i + j;
        continue;
      }
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      table[i][j] =
          std::min({table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
      }
    }
  }
  return table[a.size()][b.size()];
}

}  // namespace

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string NearestName(std::string_view given, std::span<const std::string> known) {
  if (given.empty() || given.size() > kMostNameBytes) return "";
  const std::string typed = LowerCase(given);
  std::string nearest;
  std::tuple<bool, size_t> best = {true, kMostNameBytes};
  for (const std::string& name : known) {
    if (name.empty() || name.size() > kMostNameBytes || name == given) continue;
    const std::string other = LowerCase(name);
    const bool continues = other.starts_with(typed);
    const bool begins = continues || typed.starts_with(other);
    const size_t distance = Distance(typed, other);
    const size_t most = std::max(typed.size(), other.size()) / 3;
    // One letter begins half of all names.
    const bool is_near = distance <= most || (begins && std::min(typed.size(), other.size()) > 1);
    const std::tuple<bool, size_t> rank = {!continues, distance};
    if (!is_near || rank >= best) continue;
    best = rank;
    nearest = name;
  }
  return nearest;
}

std::string DidYouMean(std::string_view given, std::span<const std::string> known) {
  const std::string near = NearestName(given, known);
  return near.empty() ? "" : " (did you mean '" + near + "'?)";
}

std::vector<std::string> TypeNames() {
  std::vector<std::string> names;
  for (const DType dtype : AllDTypes()) {
    names.emplace_back(ShortName(dtype));
    names.emplace_back(Name(dtype));
  }
  return names;
}

std::vector<std::string> ListedNames(std::string_view known) {
  constexpr std::string_view kSeparator = ", ";
  std::vector<std::string> names;
  while (!known.empty()) {
    const size_t end = std::min(known.find(kSeparator), known.size());
    names.emplace_back(known.substr(0, end));
    known.remove_prefix(std::min(end + kSeparator.size(), known.size()));
  }
  return names;
}

std::string DidYouMean(std::string_view given, std::string_view known) {
  return DidYouMean(given, ListedNames(known));
}

}  // namespace kvcheck
