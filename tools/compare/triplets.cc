#include "tools/compare/triplets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>
#include <vector>

namespace kvcheck {
namespace {

using Pairs = std::map<std::string, TensorPair>;
using Endings = std::vector<std::string>;  // one per plane

// Of codes, scales and biases.
const Endings kTripletPlanes = {"codes", "scales", "biases"};
const Endings kMlxLmCache = {".0", ".1", ".2"};
const Endings kMlxLayer[] = {{".weight", ".scales", ".biases"}, {"/weight", "/scales", "/biases"}};

// "_codes", ".codes" and "/codes", of every plane.
std::vector<Endings> SpeltOut(const std::vector<std::string>& planes) {
  std::vector<Endings> spelt;
  for (const char separator : {'_', '.', '/'}) {
    Endings& endings = spelt.emplace_back();
    for (const std::string& plane : planes) endings.push_back(separator + plane);
  }
  return spelt;
}

// A tensor of GOT alone.
const TensorPair* FindExtra(const Pairs& pairs, const std::string& name) {
  const auto found = pairs.find(name);
  return found == pairs.end() || found->second.in_gold ? nullptr : &found->second;
}

bool IsReal(const ObjectRecord& record) { return record.problem.empty() && IsFloat(record.dtype); }

bool HasType(const FileIndex& index, const std::string& path, DType dtype) {
  const ObjectRecord& record = index.objects.at(path);
  return record.problem.empty() && record.dtype == dtype;
}

// Takes the tensors base + endings for GOLD's `name`. False when they are not all there.
bool Take(const std::string& name, const std::string& base, const Endings& endings, Pairs* pairs) {
  std::vector<std::string> parts;
  for (const std::string& ending : endings) {
    const bool is_own = base + ending == name;
    const TensorPair* part = is_own ? &pairs->at(name) : FindExtra(*pairs, base + ending);
    if (part == nullptr) return false;
    parts.push_back(part->got);
  }
  for (const std::string& ending : endings) {
    if (base + ending != name) pairs->erase(base + ending);
  }
  TensorPair& pair = pairs->at(name);
  pair.got.clear();
  pair.triplet = std::move(parts);
  return true;
}

// One way to name the planes of a tensor: what comes before the endings, and these.
struct PlaneSpelling {
  std::string base;
  Endings endings;
};

// Under which names the planes of GOLD's `name` are looked for, where GOT has not the name itself.
std::vector<PlaneSpelling> SpellingsOf(const std::string& name, const Endings& planes) {
  std::vector<PlaneSpelling> spellings;
  for (Endings& endings : SpeltOut(planes)) spellings.push_back({name, std::move(endings)});
  if (planes == kTripletPlanes) spellings.push_back({name, kMlxLmCache});
  return spellings;
}
// The same where it has, with the codes of a layer.
std::vector<PlaneSpelling> LayerSpellingsOf(const std::string& name) {
  std::vector<PlaneSpelling> spellings;
  for (const Endings& endings : kMlxLayer) {
    if (!name.ends_with(endings[0])) continue;
    spellings.push_back({name.substr(0, name.size() - endings[0].size()), endings});
  }
  return spellings;
}

// GOT has the name itself, for the codes.
void TakeLayer(const std::string& name, const FileIndex& got, Pairs* pairs) {
  if (!HasType(got, pairs->at(name).got, DType::kUInt32)) return;
  for (const PlaneSpelling& spelling : LayerSpellingsOf(name)) {
    if (Take(name, spelling.base, spelling.endings, pairs)) return;
  }
}

// What of the planes of GOLD's `name` is there and what is not, in the spelling of which most is.
std::string MissingPlanes(const std::string& name, const KvFormat& format,
                          const std::vector<PlaneSpelling>& spellings, const Endings& planes,
                          const Pairs& pairs) {
  std::vector<std::string> there, missing, beside;
  for (const PlaneSpelling& spelling : spellings) {
    std::vector<std::string> found, absent;
    for (size_t i = 0; i < planes.size(); ++i) {
      const std::string path = spelling.base + spelling.endings[i];
      if (path == name || FindExtra(pairs, path) != nullptr) {
        found.push_back(path);
      } else {
        const bool in_gold = pairs.contains(path) && pairs.at(path).in_gold;
        absent.push_back(fmt::format("{} ({}{})", path, planes[i],
                                     in_gold ? ", a tensor of its own: GOLD has it too" : ""));
      }
    }
    if (!missing.empty() && found.size() <= there.size()) continue;
    there = std::move(found);
    missing = std::move(absent);
  }
  const std::string& base = spellings.front().base;
  for (const auto& [path, pair] : pairs) {
    const bool begins = path.size() > base.size() && path.starts_with(base) &&
                        std::string_view("_./").find(path[base.size()]) != std::string_view::npos;
    const bool is_there = std::find(there.begin(), there.end(), path) != there.end();
    if (begins && path != name && !pair.in_gold && !is_there) beside.push_back(path);
  }
  constexpr size_t kMost = 4;
  if (beside.size() > kMost) beside.resize(kMost);
  return fmt::format(
      "{} keeps it as {}: there {} {}; missing {} {}{}: store every plane under one spelling of "
      "its "
      "name, or name what is it with --map",
      Print(format), fmt::join(planes, ", "), there.size() == 1 ? "is" : "are",
      there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", ")),
      missing.size() == 1 ? "is" : "are", fmt::join(missing, ", "),
      beside.empty() ? "" : fmt::format("; beside them is {}", fmt::join(beside, ", ")));
}

bool IsCacheTriplet(const Pairs& pairs, const std::string& name) {
  const auto found = pairs.find(name);
  if (found == pairs.end() || found->second.triplet.empty()) return false;
  return found->second.triplet[0].ends_with(kMlxLmCache[0]);
}

// Marks L.3 and L.4 of the layer whose values are `values`, L.1.
void MarkFormat(const std::string& values, const FileIndex& got, Pairs* pairs) {
  constexpr std::string_view kValues = ".1";
  if (!values.ends_with(kValues)) return;
  const std::string layer = values.substr(0, values.size() - kValues.size());
  if (!IsCacheTriplet(*pairs, layer + ".0") || !IsCacheTriplet(*pairs, values)) return;
  const std::pair<std::string, FormatField> fields[] = {{layer + ".3", FormatField::kGroupSize},
                                                        {layer + ".4", FormatField::kBits}};
  for (const auto& [name, field] : fields) {
    const TensorPair* pair = FindExtra(*pairs, name);
    if (pair == nullptr) continue;
    if (!HasType(got, pair->got, DType::kInt32)) continue;
    if (got.objects.at(pair->got).shape.axes.empty()) pairs->at(name).says = field;
  }
}

}  // namespace

void TakeTriplets(
    const FileIndex& gold, const FileIndex& got,
    const std::function<std::optional<KvFormat>(const std::string& gold_path)>& format_of,
    std::map<std::string, TensorPair>* pairs) {
  std::vector<std::string> names;
  for (const auto& [name, pair] : *pairs) {
    if (pair.in_gold && IsReal(gold.objects.at(name))) names.push_back(name);
  }
  for (const std::string& name : names) {
    const std::optional<KvFormat> format = format_of(name);
    if (!format) continue;
    const Planes planes = PlanesOf(*format, BlockOf(*format));
    const Endings plane_names = PlaneNames(*format);
    TensorPair& pair = pairs->at(name);
    const bool is_layer = plane_names == kTripletPlanes && !pair.got.empty();
    if (!pair.got.empty()) {
      if (is_layer) TakeLayer(name, got, pairs);
      if (planes.size() == 1 && HasType(got, pair.got, planes[0].dtype)) {
        Take(name, name, {""}, pairs);
      }
    } else {
      for (const PlaneSpelling& spelling : SpellingsOf(name, plane_names)) {
        if (Take(name, spelling.base, spelling.endings, pairs)) break;
      }
    }
    // What has a real type is dequantised, and needs no planes.
    const bool is_unread = !pair.got.empty() && !got.objects.at(pair.got).problem.empty();
    if (!pair.triplet.empty() || is_unread) continue;
    if (!pair.got.empty() && IsReal(got.objects.at(pair.got))) continue;
    std::vector<PlaneSpelling> spellings;
    if (is_layer && HasType(got, pair.got, planes[0].dtype)) spellings = LayerSpellingsOf(name);
    if (spellings.empty()) spellings = SpellingsOf(name, plane_names);
    pair.lacks = MissingPlanes(name, *format, spellings, plane_names, *pairs);
  }
  for (const std::string& name : names) MarkFormat(name, got, pairs);
}

std::string TripletHint(const FileIndex& got, const std::string& name) {
  const auto all_there = [&](const Endings& endings) {
    return std::all_of(endings.begin(), endings.end(), [&](const std::string& ending) {
      return got.objects.contains(name + ending);
    });
  };
  const auto text = [&](const Endings& endings) {
    return fmt::format(
        "; it has {0}{1}, {0}{2} and {0}{3}: where they stand for it, name their format with --tol "
        "codec:FORMAT or in --rules",
        name, endings[0], endings[1], endings[2]);
  };
  if (all_there(kMlxLmCache)) return text(kMlxLmCache);
  for (const Endings& endings : SpeltOut(kTripletPlanes)) {
    if (all_there(endings)) return text(endings);
  }
  return "";
}

std::optional<int64_t> StatedByRule(const ToleranceRule& rule, FormatField field) {
  const auto* codec = std::get_if<CodecRule>(&rule);
  const std::optional<CodeGrid> grid = codec == nullptr ? std::nullopt : GridOf(codec->format);
  if (!grid) return std::nullopt;
  if (field == FormatField::kGroupSize) return grid->group;
  const auto highest = static_cast<uint64_t>(grid->highest - grid->lowest);
  return static_cast<int64_t>(std::bit_width(highest));
}

}  // namespace kvcheck
