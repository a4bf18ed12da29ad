#include "tools/compare/selection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "golden/content_hash.h"
#include "golden/numpy_array.h"
#include "reference/spec/error.h"
#include "reference/spec/text.h"
#include "tools/compare/triplets.h"

namespace kvcheck {
namespace {

constexpr size_t kNamesShown = 3;

std::vector<std::string> PathsOf(const FileIndex& index) {
  std::vector<std::string> paths;
  for (const ListedTensor& tensor : ListTensors(index)) paths.push_back(tensor.path);
  return paths;
}

std::string FirstOf(const std::vector<std::string>& names) {
  if (names.empty()) return "there are none";
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(kNamesShown, names.size()));
  return fmt::format("the first of {}: {}", names.size(), fmt::join(names.begin(), end, ", "));
}

// A file of one tensor whose name is only the file's (.npy, raw elements).
bool IsNamedByFile(const FileIndex& index) {
  const auto root = index.objects.find("/");
  return root != index.objects.end() && root->second.attributes.contains(kNamedByFile);
}

// GOT's paths by the name of GOLD that each has after the renames.
std::map<std::string, std::vector<std::string>> ByGoldName(const FileIndex& gold_index,
                                                           const FileIndex& got_index,
                                                           const Renames& renames) {
  const std::vector<std::string> got = PathsOf(got_index);
  std::map<std::string, std::vector<std::string>> by_name;
  if (renames.empty() && (IsNamedByFile(gold_index) || IsNamedByFile(got_index))) {
    const std::vector<std::string> gold = PathsOf(gold_index);
    if (gold.size() == 1 && got.size() == 1) return {{gold[0], {got[0]}}};
  }
  if (renames.empty()) {
    for (const std::string& path : got) by_name[path] = {path};
    return by_name;
  }
  for (const auto& [path, name] : renames.Apply(got)) by_name[name].push_back(path);
  return by_name;
}

bool IsAbsent(const TensorPair& pair) {
  return !pair.in_gold || (pair.got.empty() && pair.triplet.empty());
}

// A pattern that selects or allows nothing is a misspelt one.
void CheckUsed(const std::vector<Glob>& globs, const std::vector<std::string>& names,
               const std::string& option) {
  for (const Glob& glob : globs) {
    bool used = false;
    for (const std::string& name : names) used = used || glob.Matches(name);
    if (used) continue;
    throw Error(ErrorCode::kSelection,
                fmt::format("'{}' matches no tensor; {}", glob.text(), FirstOf(names)), option);
  }
}

}  // namespace

bool Shard::Has(const std::string& gold_path) const {
  if (count == 1) return true;
  Sha256 sha;
  sha.Update(gold_path.data(), gold_path.size());
  const Sha256Digest digest = sha.Finish();
  uint64_t hash = 0;
  for (size_t i = 0; i < sizeof(hash); ++i) hash = hash << 8 | std::to_integer<uint64_t>(digest[i]);
  return hash % static_cast<uint64_t>(count) == static_cast<uint64_t>(index - 1);
}

Shard ParseShard(const std::string& text) {
  const size_t slash = text.find('/');
  try {
    if (slash == std::string::npos) throw Error(ErrorCode::kParse, "no slash");
    const Piece line = WholeLine(text);
    Shard shard;
    shard.count = ParseInt({line.text.substr(slash + 1), line.whole}, 1, kMostShards);
    shard.index = ParseInt({line.text.substr(0, slash), line.whole}, 1, shard.count);
    return shard;
  } catch (const Error&) {
    throw Error(ErrorCode::kUsage,
                fmt::format("write i/n, part i of n, with 1 <= i <= n <= {}", kMostShards),
                fmt::format("--shard '{}'", text));
  }
}

Selection SelectTensors(const FileIndex& gold, const FileIndex& got,
                        const SelectionOptions& options) {
  std::map<std::string, TensorPair> pairs;
  for (const std::string& path : PathsOf(gold)) pairs[path] = {path, true, "", {}, {}, ""};
  const auto is_selected = [&](const std::string& name) {
    return (options.include.empty() || MatchesAny(options.include, name)) &&
           !MatchesAny(options.exclude, name);
  };
  std::vector<std::string> collisions;
  for (const auto& [name, paths] : ByGoldName(gold, got, options.renames)) {
    TensorPair& pair = pairs[name];
    pair.name = name;
    pair.got = paths.front();
    if (paths.size() > 1 && is_selected(name)) {
      collisions.push_back(fmt::format("{} become {}", fmt::join(paths, " and "), name));
    }
  }
  if (!collisions.empty()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("tensors of GOT would share a name: {}", fmt::join(collisions, "; ")),
                "--map");
  }

  if (options.format_of) TakeTriplets(gold, got, options.format_of, &pairs);

  Selection selection;
  for (const auto& [name, pair] : pairs) selection.all_names.push_back(name);
  CheckUsed(options.include, selection.all_names, "--include");
  CheckUsed(options.exclude, selection.all_names, "--exclude");
  CheckUsed(options.allow_missing, selection.all_names, "--allow-missing");
  CheckUsed(options.allow_extra, selection.all_names, "--allow-extra");
  int64_t before_shard = 0;
  int64_t allowed = 0;
  for (auto& [name, pair] : pairs) {
    if (!is_selected(name)) continue;
    const bool is_missing = pair.got.empty();
    const bool may_be_absent =
        IsAbsent(pair) &&
        MatchesAny(is_missing ? options.allow_missing : options.allow_extra, name);
    ++(may_be_absent ? allowed : before_shard);
    if (!options.shard.Has(name)) continue;
    if (may_be_absent) {
      (is_missing ? selection.allowed_missing : selection.allowed_extra).push_back(name);
    } else {
      selection.pairs.push_back(std::move(pair));
    }
  }
  if (!selection.pairs.empty()) return selection;
  if (before_shard > 0) {
    throw Error(ErrorCode::kSelection,
                fmt::format("none of the {} selected tensors is in part {} of {}: take fewer parts",
                            before_shard, options.shard.index, options.shard.count),
                "--shard");
  }
  if (allowed > 0) {
    throw Error(ErrorCode::kSelection,
                "everything selected is in one file alone, and allowed to be: nothing to compare",
                "compare");
  }
  throw Error(ErrorCode::kSelection,
              fmt::format("no tensor is selected; {}", FirstOf(selection.all_names)), "compare");
}

}  // namespace kvcheck
