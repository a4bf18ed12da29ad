#include "tools/compare/triplets.h"

#include <fmt/format.h>

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

// GOT has the name itself, for the codes.
void TakeLayer(const std::string& name, const FileIndex& got, Pairs* pairs) {
  if (!HasType(got, pairs->at(name).got, DType::kUInt32)) return;
  for (const Endings& endings : kMlxLayer) {
    const std::string& codes = endings[0];
    if (!name.ends_with(codes)) continue;
    if (Take(name, name.substr(0, name.size() - codes.size()), endings, pairs)) return;
  }
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
    const bool is_triplet = plane_names == kTripletPlanes;
    const std::string& own = pairs->at(name).got;
    if (!own.empty()) {
      if (is_triplet) TakeLayer(name, got, pairs);
      if (planes.size() == 1 && HasType(got, own, planes[0].dtype)) Take(name, name, {""}, pairs);
      continue;
    }
    bool is_taken = is_triplet && Take(name, name, kMlxLmCache, pairs);
    for (const Endings& endings : SpeltOut(plane_names)) {
      is_taken = is_taken || Take(name, name, endings, pairs);
    }
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
